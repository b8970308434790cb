package openapi

import "embed"

// Page has the files of the page at /apidoc. The page shows the document /openapi.json of the
// same server, and loads nothing from other servers.
//
//go:embed page
var Page embed.FS

package openapi

import "embed"

// Page is the page that shows a document which the same server has as /openapi.json. It
// is made for /apidoc, and needs nothing from anywhere else.
//
//go:embed page
var Page embed.FS

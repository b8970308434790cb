package yang

import "embed"

// files are the modules, each in the file of its name.
//
//go:embed *.yang
var files embed.FS

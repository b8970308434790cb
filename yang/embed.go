package yang

import "embed"

// files holds the modules, each in the file of its name.
//
//go:embed *.yang
var files embed.FS

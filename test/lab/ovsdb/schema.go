package ovsdb

import (
	"os/exec"
	"path/filepath"
)

// northbound is the name of the northbound schema.
const northbound = "ovn/ovn-nb"

// Schema returns the path of a schema, for example openvswitch/vswitch. It is of the same installation as the ovsdb-tool in PATH.
func Schema(name string) string {
	root := "/usr"
	if tool, err := exec.LookPath("ovsdb-tool"); err == nil {
		if bin, err := filepath.EvalSymlinks(filepath.Dir(tool)); err == nil { // /bin is a link to /usr/bin
			root = filepath.Dir(bin)
		}
	}
	return filepath.Join(root, "share", name+".ovsschema")
}

// Command coe-cni is the CNI plugin of coe-bridge: a thin client of the node's agent
// (coe-bridge agent). Container runtimes call it.
package main

import (
	"fmt"
	"os"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/coe-bridge/coe-bridge/cni/plugin"
)

// version is set by the build (-X main.version=…).
var version = "devel"

func main() {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "find the plugin's own file:", err)
		os.Exit(1)
	}
	skel.PluginMainFuncs(plugin.Funcs(program), plugin.Versions(), "CNI plugin coe-cni "+version)
}

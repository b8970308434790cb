// Package ovn25 installs OVN 25.03 and Open vSwitch 3.5, the versions of Debian 13, into the user's cache. Tests and demos run on
// them if their folder is the first in PATH.
package ovn25

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
	"github.com/coe-bridge/coe-bridge/test/lab/debian"
)

// packages has OVN and Open vSwitch, and their libraries.
var packages = debian.Packages{
	Release: "trixie",
	Names: []string{
		"ovn-common", "ovn-central", "ovn-host", "openvswitch-common", "openvswitch-switch",
		"libc6", "libbpf1", "libcap-ng0", "libcap2", "libelf1t64", "libevent-2.1-7t64", "libnuma1", "libssl3t64", "libudev1",
		"libunbound8", "libxdp1", "libzstd1", "zlib1g",
	},
}

// programs match the files of the packages that are programs; others in the same folders are scripts.
var programs = []string{
	"usr/bin/ovn-*ctl", "usr/bin/ovn-controller", "usr/bin/ovn-northd", "usr/bin/ovn-trace",
	"usr/bin/ovs-*ctl", "usr/bin/ovsdb-*", "usr/sbin/ovsdb-server", "usr/lib/openvswitch-switch/ovs-vswitchd",
}

// schemas match the schemas of the databases.
const schemas = "usr/share/*/*.ovsschema"

// Install returns the folder of the programs. If the user's cache does not have them, Install downloads them, and reports to
// progress.
func Install(ctx context.Context, progress io.Writer) (string, error) {
	if _, err := exec.LookPath("patchelf"); err != nil {
		return "", fmt.Errorf("install OVN 25.03: missing Debian package: apt-get install patchelf")
	}
	dir, err := cache.Folder{
		Title: "OVN 25.03", Takes: "half a minute, and 80 MB",
		Name: "ovn-25.03", Inputs: append(packages.Inputs(), programs...),
	}.Make(ctx, progress, func(ctx context.Context, dir string) error { return fill(ctx, dir, progress) })
	return filepath.Join(dir, "bin"), err
}

// fill makes the folders bin, lib and share. It starts with an empty folder.
func fill(ctx context.Context, dir string, progress io.Writer) error {
	root, bin, lib := filepath.Join(dir, "root"), filepath.Join(dir, "bin"), filepath.Join(dir, "lib")
	for _, old := range []string{root, bin, lib, filepath.Join(dir, "share")} {
		if err := os.RemoveAll(old); err != nil {
			return fmt.Errorf("remove what broke off: %w", err)
		}
	}
	if err := packages.Unpack(ctx, root, progress); err != nil {
		return err
	}
	if err := debian.CopyLibraries(ctx, root, lib); err != nil {
		return err
	}
	for _, pattern := range programs {
		err := move(filepath.Join(root, pattern), func(string) string { return bin })
		if err != nil {
			return err
		}
	}
	err := move(filepath.Join(root, schemas), func(folder string) string { return filepath.Join(dir, "share", folder) })
	if err != nil {
		return err
	}
	if err := link(ctx, bin, lib); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// move moves files to a folder that depends on the name of their folder.
func move(pattern string, to func(folder string) string) error {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("look for %s in the packages: nothing found", pattern)
	}
	for _, file := range found {
		folder := to(filepath.Base(filepath.Dir(file)))
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		if err := os.Rename(file, filepath.Join(folder, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// link makes the programs use the libraries, and tries each of them.
func link(ctx context.Context, bin, lib string) error {
	entries, err := os.ReadDir(bin)
	if err != nil {
		return err
	}
	for _, e := range entries {
		program := filepath.Join(bin, e.Name())
		if err := debian.Link(ctx, program, lib); err != nil {
			return err
		}
		if err := debian.Run(ctx, program, "--version"); err != nil {
			return fmt.Errorf("try it: %w", err)
		}
	}
	return nil
}

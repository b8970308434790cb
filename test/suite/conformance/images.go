package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// lookTimeout bounds a run of a short program.
const lookTimeout = time.Minute

// needs has the programs of this machine that tests run in pods, or in a shell there. Each has its
// Debian package, its path on this machine and its path in an image.
var needs = []struct{ pkg, path, to string }{
	{"busybox-static", "/usr/bin/busybox", "bin/busybox"},
	{"dash", "/usr/bin/dash", "bin/sh"}, // busybox sh prefers its own nc and wget to those in PATH
	{"bind9-dnsutils", "/usr/bin/dig", "usr/bin/dig"},
	{"curl", "/usr/bin/curl", "usr/bin/curl"},
	{"netcat-openbsd", "/usr/bin/nc.openbsd", "usr/bin/nc"},
	{"libc-bin", "/usr/bin/getent", "usr/bin/getent"},
	{"wget", "/usr/bin/wget", "usr/bin/wget"}, // the wget of busybox does not resolve names
}

// nameServices tells the C library to look for hosts in /etc/hosts first.
const nameServices = "/etc/nsswitch.conf"

// wgetSettings are the settings of wget in the images.
const wgetSettings = "test/suite/conformance/wgetrc"

// missing returns the Debian packages that a run needs and that are not installed.
func missing() []string {
	packages := kubelab.Missing()
	for _, n := range needs {
		if _, err := os.Stat(n.path); err != nil && !slices.Contains(packages, n.pkg) {
			packages = append(packages, n.pkg)
		}
	}
	return packages
}

// makeImages makes the images that the tests of the group use, with the names that the suite uses.
func (s *suite) makeImages(ctx context.Context) ([]kubelab.Image, error) {
	names, err := s.images(ctx)
	if err != nil {
		return nil, err
	}
	base, err := s.shellImage(ctx)
	if err != nil {
		return nil, err
	}
	var images []kubelab.Image
	for _, name := range names {
		if command, found := commands[shortName(name)]; found {
			i := base
			i.Name, i.Entry, i.Command = name, command[:1], command[1:]
			images = append(images, i)
		}
	}
	return images, nil
}

// commands has the default commands of images, by short name. All images have the same files: a
// shell and the test programs. The tests of the group use the image of a web server for pods that
// do nothing, and the image with its own C library for dig and getent.
var commands = map[string][]string{
	"agnhost":                {"/agnhost", "pause"},
	"pause":                  {"/agnhost", "pause"},
	"nginx":                  {"/agnhost", "test-webserver"},
	"glibc-dns-testing":      {"/agnhost", "pause"},
	"busybox":                {"/bin/sh"},
	"regression-issue-74839": {"/regression-issue-74839"},
}

// shellImage returns an image with the files of all images.
func (s *suite) shellImage(ctx context.Context) (i kubelab.Image, err error) {
	if i.Files, err = shellFiles(ctx); err != nil {
		return i, err
	}
	if i.Links, err = applets(ctx); err != nil {
		return i, err
	}
	dir, err := moduleFolder(ctx)
	if err != nil {
		return i, err
	}
	i.Files[s.programs.Agnhost], i.Files[s.programs.CoreDNS], i.Files[s.outOfWindow] = "agnhost", "coredns", "regression-issue-74839"
	for _, name := range []string{"localhost.crt", "localhost.key"} { // agnhost reads them from this path
		i.Files[filepath.Join(dir, "test/images/agnhost/porter", name)] = name
	}
	return i, nil
}

// moduleFolder returns the folder of the suite's module on this machine.
func moduleFolder(ctx context.Context) (string, error) {
	dir, err := kube.FindSource(kube.Source)
	if err != nil {
		return "", fmt.Errorf("find the suite's module: %w", err)
	}
	out, err := look(ctx, "go", "-C", dir, "mod", "download", "-json", "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		return "", fmt.Errorf("find the suite's module: %w", err)
	}
	return module.Dir, nil
}

// shortName returns the name of an image without its registry and its tag.
func shortName(image string) string {
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// shellFiles returns the files of a shell with the programs that tests run in it: their paths in an
// image, by their paths on this machine.
func shellFiles(ctx context.Context) (map[string]string, error) {
	settings, err := kube.FindSource(wgetSettings)
	if err != nil {
		return nil, err
	}
	files := map[string]string{nameServices: strings.TrimPrefix(nameServices, "/"), settings: "etc/wgetrc"}
	for _, n := range needs {
		files[n.path] = n.to
		if n.pkg == "busybox-static" {
			continue
		}
		libraries, err := libraries(ctx, n.path)
		if err != nil {
			return nil, err
		}
		for _, l := range libraries {
			files[l] = strings.TrimPrefix(l, "/")
		}
	}
	return files, nil
}

// library matches a library in the output of ldd.
var library = regexp.MustCompile(`(/\S+) \(0x`)

// libraries returns the paths of the libraries of a program.
func libraries(ctx context.Context, program string) ([]string, error) {
	out, err := look(ctx, "ldd", program)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, found := range library.FindAllStringSubmatch(out, -1) {
		paths = append(paths, found[1])
	}
	return paths, nil
}

// applets returns the links by which busybox is called, except the links of the shell.
func applets(ctx context.Context) (map[string]string, error) {
	out, err := look(ctx, "busybox", "--list")
	if err != nil {
		return nil, err
	}
	links := map[string]string{}
	for name := range strings.FieldsSeq(out) {
		if name != "busybox" && name != "sh" {
			links["bin/"+name] = "busybox"
		}
	}
	return links, nil
}

func look(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "", fmt.Errorf("run %s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}

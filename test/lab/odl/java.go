package odl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
	"github.com/coe-bridge/coe-bridge/test/lab/debian"
)

// javaPackages has Debian's packages of a JRE 8, which these releases need, and of its C library. They are
// only in Debian's unstable release, which has only the newest version of each package.
var javaPackages = debian.Packages{
	Release: "sid",
	Names:   []string{"openjdk-8-jre-headless", "libc6", "zlib1g", "libgcc-s1", "libstdc++6"},
}

// javaPattern matches the JRE in its package.
const javaPattern = "usr/lib/jvm/java-8-openjdk-*/jre"

// javaPrograms has the programs that are linked with the downloaded libraries, not with the system's.
var javaPrograms = []string{"java", "keytool"}

// installJava returns the folder of a JRE 8 in the user's cache. It does not change the system.
func installJava(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := cache.Folder{
		Title: "Java 8", Takes: "half a minute, and 110 MB",
		Name: "java-8", Inputs: javaPackages.Inputs(),
	}.Make(ctx, progress, func(ctx context.Context, dir string) error { return java{dir, progress}.fill(ctx) })
	return filepath.Join(dir, "jre"), err
}

// java creates a JRE in a folder.
type java struct {
	dir      string
	progress io.Writer
}

func (j java) path(parts ...string) string {
	return filepath.Join(append([]string{j.dir}, parts...)...)
}

// fill starts with an empty folder, because earlier downloads may be outdated.
func (j java) fill(ctx context.Context) error {
	for _, dir := range []string{"jre", "root"} {
		if err := os.RemoveAll(j.path(dir)); err != nil {
			return fmt.Errorf("remove what broke off: %w", err)
		}
	}
	if err := javaPackages.Unpack(ctx, j.path("root"), j.progress); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{j.take, j.link} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(j.path("root")); err != nil {
		return fmt.Errorf("remove what is needed no more: %w", err)
	}
	if err := debian.Run(ctx, j.path("jre/bin/java"), "-version"); err != nil {
		return fmt.Errorf("try it: %w", err)
	}
	return nil
}

// take moves the JRE out of root, together with the libraries and the package's settings below /etc.
func (j java) take(ctx context.Context) error {
	found, err := filepath.Glob(j.path("root", javaPattern))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("look for the JRE in its package: %d of %s", len(found), javaPattern)
	}
	if err := os.Rename(found[0], j.path("jre")); err != nil {
		return fmt.Errorf("move the JRE: %w", err)
	}
	if err := filepath.WalkDir(j.path("jre"), j.resolve); err != nil {
		return fmt.Errorf("copy settings: %w", err)
	}
	return debian.CopyLibraries(ctx, j.path("root"), j.path("jre/libc"))
}

// resolve replaces a link out of the JRE into root by the file.
func (j java) resolve(path string, d fs.DirEntry, err error) error {
	if err != nil || d.Type()&fs.ModeSymlink == 0 {
		return err
	}
	target, err := os.Readlink(path)
	if err != nil || !filepath.IsAbs(target) {
		return err
	}
	content, err := os.ReadFile(j.path("root", target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a link to a package that is not needed
	}
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// link makes the programs use the downloaded libraries.
func (j java) link(ctx context.Context) error {
	for _, name := range javaPrograms {
		if err := debian.Link(ctx, j.path("jre/bin", name), j.path("jre/libc"), j.path("jre/lib/amd64/jli"), j.path("jre/lib/amd64")); err != nil {
			return err
		}
	}
	return nil
}

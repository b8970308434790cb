package odl

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// installTimeout bounds an installation, which is mostly downloads.
const installTimeout = 20 * time.Minute

// needs are the programs of an installation, with their Debian packages.
var needs = []struct{ pkg, name string }{
	{"maven", "mvn"},
	{"patchelf", "patchelf"},
}

// Missing returns the required Debian packages that are not installed.
func Missing() []string {
	missing := ovnhost.Missing()
	for _, n := range needs {
		if _, err := exec.LookPath(n.name); err != nil && !slices.Contains(missing, n.pkg) {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

// Installation is the directory of a release, which is never changed.
type Installation struct {
	Karaf string // the container with all of its bundles
	Java  string // the JRE to run it with
}

// Install returns the directory of a release. If the user's cache does not have it, Install downloads the artifacts and builds it,
// which takes minutes and is reported to progress. An interrupted installation is continued by the next call.
func Install(ctx context.Context, release Release, progress io.Writer) (i Installation, err error) {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	v, err := release.versions()
	if err == nil {
		err = installable()
	}
	if err != nil {
		return i, fmt.Errorf("install OpenDaylight: %w", err)
	}
	if i.Java, err = installJava(ctx, progress); err != nil {
		return i, fmt.Errorf("install OpenDaylight %s: %w", release, err)
	}
	d := distribution{release: release, versions: v, java: i.Java, progress: progress}
	if i.Karaf, err = d.install(ctx); err != nil {
		return i, fmt.Errorf("install OpenDaylight %s: %w", release, err)
	}
	return i, nil
}

func installable() error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("its parts are for amd64, this is %s", runtime.GOARCH)
	}
	if missing := Missing(); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

// distribution builds a release.
type distribution struct {
	release Release
	versions
	java     string
	progress io.Writer
}

func (d distribution) install(ctx context.Context) (karaf string, err error) {
	dir, err := cache.Folder{
		Title:  fmt.Sprintf("OpenDaylight %s (Netvirt %s)", d.release, d.Netvirt),
		Takes:  "four to ten minutes, and 800 MB of which half is given back",
		Name:   "opendaylight-" + string(d.release),
		Inputs: append([]string{fmt.Sprintf("%+v", d.versions), pomTemplate, stubBlueprint, stubManifest, getPlugin}, unpublished...),
	}.Make(ctx, d.progress, d.fill)
	return filepath.Join(dir, "karaf"), err
}

// fill builds the container. Downloaded files stay until it is complete, so that a later call can
// continue.
func (d distribution) fill(ctx context.Context, dir string) error {
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	m := maven{repository: filepath.Join(dir, "repository"), java: d.java, progress: d.progress}
	if err := d.prepare(ctx, m, work); err != nil {
		return err
	}
	if err := m.run(ctx, "putting OpenDaylight together", work, "prepare-package"); err != nil {
		return err
	}
	karaf := filepath.Join(dir, "karaf")
	if err := os.RemoveAll(karaf); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(work, "target", "assembly"), karaf); err != nil {
		return fmt.Errorf("move what was put together: %w", err)
	}
	for _, used := range []string{work, m.repository} {
		if err := os.RemoveAll(used); err != nil {
			return fmt.Errorf("remove what is needed no more: %w", err)
		}
	}
	return nil
}

// Package debian unpacks Debian packages of another release than this machine's, so that tests can run their programs. It does not
// change the system.
package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
)

// Libraries is the folder of libraries in the packages, which are for amd64.
const Libraries = "usr/lib/x86_64-linux-gnu"

// toolTimeout bounds a run of a short program.
const toolTimeout = time.Minute

// archiveKeys has the keys that sign Debian's releases.
const archiveKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// aptSettings make apt use only one folder, so that it does not change the system's lists and caches.
const aptSettings = `Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferencesparts "-";
Dir::State::lists "%[1]s/lists";
Dir::Cache "%[1]s/cache";
APT::Sandbox::User "root";
Acquire::Languages "none";
`

// aptSource is the source of the packages. apt does not download the lists for other programs.
const aptSource = "deb [signed-by=%s target=Packages] %s %s main\n"

// Packages are packages of a release. Dependencies are not followed: Names has them too.
type Packages struct {
	Release string // for example trixie
	Names   []string
}

// Inputs determine what Unpack creates.
func (p Packages) Inputs() []string {
	return append([]string{aptSource, aptSettings, p.Release}, p.Names...)
}

// Unpack downloads the packages from the mirror that this machine uses for Debian to the folder packages beside the given one,
// extracts them to the given one, which must not exist, and removes the folder packages. It reports to progress.
func (p Packages) Unpack(ctx context.Context, to string, progress io.Writer) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("unpack Debian packages: the tests use packages for amd64, this is %s", runtime.GOARCH)
	}
	work := filepath.Join(filepath.Dir(to), "packages")
	if err := os.RemoveAll(work); err != nil {
		return fmt.Errorf("remove what broke off: %w", err)
	}
	err := p.download(ctx, work, progress)
	if err == nil {
		err = extract(ctx, work, to)
	}
	return errors.Join(err, os.RemoveAll(work))
}

// download downloads the packages to a folder.
func (p Packages) download(ctx context.Context, to string, progress io.Writer) error {
	apt := filepath.Join(to, "apt")
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return fmt.Errorf("make folders for apt: %w", err)
		}
	}
	from, err := mirror(ctx)
	if err != nil {
		return err
	}
	settings := filepath.Join(apt, "apt.conf")
	for path, content := range map[string]string{
		filepath.Join(apt, "sources.list"): fmt.Sprintf(aptSource, archiveKeys, from, p.Release),
		settings:                           fmt.Sprintf(aptSettings, apt),
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write settings of apt: %w", err)
		}
	}
	get := func(title string, args ...string) error {
		cmd := exec.Command("apt-get", append([]string{"--quiet"}, args...)...)
		cmd.Dir = to
		cmd.Env = append(os.Environ(), "APT_CONFIG="+settings)
		return cache.Run(ctx, progress, title, cmd)
	}
	if err := get("reading Debian's list of packages", "update"); err != nil {
		return err
	}
	return get("downloading packages", append([]string{"download"}, p.Names...)...)
}

// mirror returns the mirror from which this machine gets the component main of Debian.
func mirror(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its sources: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		mirror, component, _ := strings.Cut(strings.TrimSpace(line), " ")
		if component == "main" && strings.HasSuffix(strings.TrimRight(mirror, "/"), "/debian") {
			return mirror, nil
		}
	}
	return "", errors.New("look for Debian among apt's sources: no source ends in /debian and has the component main")
}

// extract extracts all packages in a folder.
func extract(ctx context.Context, from, to string) error {
	packages, err := filepath.Glob(filepath.Join(from, "*.deb"))
	if err != nil {
		return err
	}
	for _, p := range packages {
		if err := Run(ctx, "dpkg-deb", "--extract", p, to); err != nil {
			return fmt.Errorf("unpack: %w", err)
		}
	}
	return nil
}

// CopyLibraries copies the libraries of unpacked packages to a new folder.
func CopyLibraries(ctx context.Context, root, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return fmt.Errorf("make folder of libraries: %w", err)
	}
	shared, err := filepath.Glob(filepath.Join(root, Libraries, "*.so*"))
	if err != nil {
		return err
	}
	return Run(ctx, "cp", append([]string{"--dereference", "--target-directory=" + to}, shared...)...)
}

// loader is the C library's program that starts other programs, in the folder of libraries.
const loader = "ld-linux-x86-64.so.2"

// Link makes a program use the libraries in some folders, not the system's. The first folder has the C library.
func Link(ctx context.Context, program string, libraries ...string) error {
	err := Run(ctx, "patchelf", "--set-interpreter", filepath.Join(libraries[0], loader), program)
	if err == nil {
		err = Run(ctx, "patchelf", "--force-rpath", "--set-rpath", strings.Join(libraries, ":"), program)
	}
	if err != nil {
		return fmt.Errorf("link %s with its libraries: %w", filepath.Base(program), err)
	}
	return nil
}

// Run runs a short program.
func Run(ctx context.Context, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	return cache.Run(ctx, io.Discard, filepath.Base(name), exec.Command(name, args...))
}

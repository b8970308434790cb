package odl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
)

// debianKeys has the keys that sign Debian's releases.
const debianKeys = "/usr/share/keyrings/debian-archive-keyring.gpg"

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
const aptSource = "deb [signed-by=%s target=Packages] %s sid main\n"

// download downloads the packages of the unstable release from the mirror that this machine uses for Debian.
func (j java) download(ctx context.Context) error {
	apt := j.path("packages", "apt")
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(apt, dir), 0o755); err != nil {
			return fmt.Errorf("make folders for apt: %w", err)
		}
	}
	mirror, err := debianMirror(ctx)
	if err != nil {
		return err
	}
	settings := filepath.Join(apt, "apt.conf")
	for path, content := range map[string]string{
		filepath.Join(apt, "sources.list"): fmt.Sprintf(aptSource, debianKeys, mirror),
		settings:                           fmt.Sprintf(aptSettings, apt),
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("write settings of apt: %w", err)
		}
	}
	if err := j.apt(ctx, "reading Debian's list of packages", settings, "update"); err != nil {
		return err
	}
	return j.apt(ctx, "downloading Java", settings, append([]string{"download"}, javaPackages...)...)
}

func (j java) apt(ctx context.Context, title, settings string, args ...string) error {
	cmd := exec.Command("apt-get", append([]string{"--quiet"}, args...)...)
	cmd.Dir = j.path("packages")
	cmd.Env = append(os.Environ(), "APT_CONFIG="+settings)
	return cache.Run(ctx, j.progress, title, cmd)
}

// debianMirror returns the mirror from which this machine gets the component main of Debian.
func debianMirror(ctx context.Context) (string, error) {
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

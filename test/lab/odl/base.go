package odl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// stateRoot has a folder for every lab with its controllers, with the name of the lab. It is on a disk, because a
// controller needs 300 MB.
const stateRoot = "/var/tmp/coe-bridge-opendaylight"

// linked has the folders of an installation whose files a controller only reads. The controller has copies of
// the others.
var linked = []string{"lib", "system"}

// datastore has the folders with the data that were written to a controller.
var datastore = []string{"journal", "snapshots"}

const (
	logFile  = "data/log/karaf.log"
	rotated  = ".[0-9]*" // matches the ends of the names of full logs
	lockFile = "lock"
)

// base is the folder of a controller.
type base string

func (b base) path(parts ...string) string {
	return filepath.Join(append([]string{string(b)}, parts...)...)
}

// newBase creates the folder of a controller of a lab from the installation. It removes the folders of removed
// labs.
func newBase(lab *ovnhost.Lab, installed Installation, at site) (base, error) {
	if err := removeDead(); err != nil {
		return "", err
	}
	b := base(filepath.Join(stateRoot, filepath.Base(lab.Dir), at.name))
	if err := os.MkdirAll(filepath.Dir(string(b)), 0o755); err != nil {
		return "", fmt.Errorf("make folder of controllers: %w", err)
	}
	if err := os.Mkdir(string(b), 0o755); err != nil {
		return "", fmt.Errorf("make folder of controller: %w", err)
	}
	if err := b.fill(installed.Karaf, at); err != nil {
		return "", errors.Join(fmt.Errorf("fill folder of controller: %w", err), b.remove())
	}
	return b, nil
}

func (b base) fill(karaf string, at site) error {
	entries, err := os.ReadDir(karaf)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, to := filepath.Join(karaf, e.Name()), b.path(e.Name())
		switch {
		case !e.IsDir():
			continue // for people to read
		case slices.Contains(linked, e.Name()):
			err = linkFiles(from, to)
		default:
			err = os.CopyFS(to, os.DirFS(from))
		}
		if err != nil {
			return err
		}
	}
	if err := b.configure(at); err != nil {
		return err
	}
	return os.MkdirAll(b.path("data/tmp"), 0o755)
}

// linkFiles creates the same folders as below from, with links to the files. The folders are not links,
// because a controller sometimes writes further files there.
func linkFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		if d.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		return os.Symlink(path, target)
	})
}

// The source of the settings of the controller's actors, and their path. Without this copy the first start
// would copy them.
const (
	actorPattern  = "system/org/opendaylight/controller/sal-clustering-config/*/*-akkaconf.xml"
	actorSettings = "configuration/initial/akka.conf"
)

// patience is added to these settings. Without it, a controller whose actors need more than ten seconds to
// start gives up, and works without its datastore.
const patience = "\nodl-cluster-data.akka.remote.startup-timeout = 180 s\n"

// configure writes the settings of the controller's actors and, of a member of a cluster, of its datastore.
func (b base) configure(at site) error {
	found, err := filepath.Glob(b.path(actorPattern))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("look for the settings of actors: %d of %s", len(found), actorPattern)
	}
	settings, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.path(actorSettings)), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(b.path(actorSettings), []byte(string(settings)+patience+at.actors()), 0o644); err != nil {
		return err
	}
	if len(at.members) == 0 {
		return nil
	}
	hosts, err := at.hosts()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(b.path(hostsFile), []byte(hosts), 0o644),
		os.WriteFile(b.path(shardSettings), []byte(at.shards()), 0o644),
	)
}

// clear removes the leftovers of a killed controller, and its full logs. It renames the log, so that the next controller writes
// a new one.
func (b base) clear() error {
	err := os.Rename(b.path(logFile), b.path(logFile+".before"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put log aside: %w", err)
	}
	left, err := filepath.Glob(b.path(logFile + rotated))
	if err != nil {
		return err
	}
	for _, path := range append(left, b.path(lockFile), b.path("instances")) {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove what a killed controller has left: %w", err)
		}
	}
	return nil
}

// wipe removes all data that were written to the controller.
func (b base) wipe() error {
	for _, dir := range datastore {
		if err := os.RemoveAll(b.path(dir)); err != nil {
			return fmt.Errorf("wipe datastore of controller: %w", err)
		}
	}
	return nil
}

func (b base) remove() error {
	if err := os.RemoveAll(string(b)); err != nil {
		return fmt.Errorf("remove folder of controller: %w", err)
	}
	_ = os.Remove(filepath.Dir(string(b))) // fails if the lab has other controllers
	return nil
}

// removeDead removes the folders of controllers whose lab is removed. These controllers have ended with the
// lab.
func removeDead() error {
	dirs, err := os.ReadDir(stateRoot)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list controllers: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		if !ovnhost.Exists(d.Name()) {
			errs = append(errs, base(filepath.Join(stateRoot, d.Name())).remove())
		}
	}
	return errors.Join(errs...)
}

// Cleanup removes the lab with that prefix and its controller, which must not be in use. It does nothing if
// there is no such lab.
func Cleanup(prefix string) error {
	if err := ovnhost.Cleanup(prefix); err != nil {
		return err
	}
	return base(filepath.Join(stateRoot, prefix)).remove()
}

// Package ovnhost makes a small OVN installation out of real parts: a central
// one (northbound and southbound database, northd) and any number of hosts, each
// a network namespace with its own Open vSwitch on the userspace datapath and its
// own ovn-controller, joined by geneve tunnels. Pods are plugged into the hosts,
// and traffic is sent between them.
//
// Everything of a lab lives in network namespaces that the lab made and in one
// directory, and is written down before it is used. So a lab can be removed
// without trace by a later process too, when the one that made it was killed.
//
// The package needs root and the Debian packages that Missing names. It knows
// nothing of Netvirt: what the databases hold is its user's business.
package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

// stateRoot holds a directory for every lab of this machine. It is short: the
// sockets below it have to fit the 107 characters of a unix socket's path.
const stateRoot = "/run/ovnhost"

// startTimeout bounds how long a whole lab may take to start.
const startTimeout = 2 * time.Minute

// labName is what a lab's prefix and a host's name have to look like.
var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$`)

// Config says which lab to start.
type Config struct {
	// Prefix names the lab and begins the names of its network namespaces.
	// There is one lab of a prefix at a time.
	Prefix string
	// Hosts are the hosts' names: system-id, hostname and chassis name at once.
	Hosts []string
	// Survive leaves the lab running when the process that started it ends;
	// Cleanup removes it. Otherwise its processes die with their parent.
	Survive bool
	// SwitchesOnly leaves OVN out: hosts have their switches, for another controller to
	// manage, and pods are plugged in without waiting for anyone.
	SwitchesOnly bool
	// Log is told about every process and pod.
	Log *slog.Logger
}

// Lab is a running OVN installation. Its methods may be called from several
// goroutines.
type Lab struct {
	// Dir holds the databases, sockets and logs; it goes with the lab.
	Dir string
	// NB, SB and Northd are the central processes; nil in a lab of switches only.
	NB, SB *Database
	Northd *Process
	// Hosts are in the order of Config.Hosts.
	Hosts []*Host

	prefix       string
	survive      bool
	switchesOnly bool
	log          *slog.Logger
	journal      *journal
	starter      *starter

	mu        sync.Mutex
	processes []*Process
	servers   map[string][]*server // by pod
}

// Start makes a lab and returns when all its parts have found each other: every
// host is a chassis in the southbound database and follows the northbound one. A
// lab that could not be started is removed, but for one that was to survive: it
// stays for its logs, until Cleanup.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("start lab %q: %w", cfg.Prefix, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l, err := newLab(cfg)
	if err != nil {
		return nil, fmt.Errorf("start lab %q: %w", cfg.Prefix, err)
	}
	if err := l.start(ctx, cfg.Hosts); err != nil {
		if !cfg.Survive {
			err = errors.Join(err, l.Close())
		}
		return nil, fmt.Errorf("start lab %q: %w", cfg.Prefix, err)
	}
	return l, nil
}

func (c *Config) check() error {
	for _, name := range append([]string{c.Prefix}, c.Hosts...) {
		if !labName.MatchString(name) {
			return fmt.Errorf("name %q: want up to 16 lower-case letters, digits and inner dashes", name)
		}
	}
	if len(c.Hosts) > maxHosts {
		return fmt.Errorf("%d hosts: at most %d have an address in the underlay", len(c.Hosts), maxHosts)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run as root")
	}
	if missing := Missing(); len(missing) > 0 {
		return fmt.Errorf("missing Debian packages: apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

func newLab(cfg Config) (*Lab, error) {
	dir := filepath.Join(stateRoot, cfg.Prefix)
	j, err := createJournal(dir, cfg.Survive)
	if err != nil {
		return nil, err
	}
	l := &Lab{
		Dir: dir, prefix: cfg.Prefix, survive: cfg.Survive, switchesOnly: cfg.SwitchesOnly, log: cfg.Log, journal: j,
		starter: newStarter(), servers: map[string][]*server{},
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, hosts []string) error {
	if err := os.Mkdir(l.Logs(), 0o755); err != nil {
		return fmt.Errorf("make folder of logs: %w", err)
	}
	if err := l.startCentral(ctx); err != nil {
		return err
	}
	for i, name := range hosts {
		host, err := l.startHost(ctx, i, name)
		if err != nil {
			return fmt.Errorf("start host %s: %w", name, err)
		}
		l.Hosts = append(l.Hosts, host)
	}
	if l.switchesOnly {
		return nil
	}
	if err := l.Sync(ctx); err != nil {
		return fmt.Errorf("wait for hosts to follow the northbound database: %w", err)
	}
	return nil
}

// Sync waits until what the northbound database says now has reached the switches
// of all hosts.
func (l *Lab) Sync(ctx context.Context) error {
	_, err := l.NBCtl(ctx, "--wait=hv", "sync")
	return err
}

// Logs is the folder with one log per process.
func (l *Lab) Logs() string { return filepath.Join(l.Dir, "logs") }

// Host is the host of that name, or nil.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Close ends every process of the lab, waits for it, and removes the lab's
// namespaces, links and files. The lab is of no use afterwards.
func (l *Lab) Close() error {
	l.mu.Lock()
	processes, servers := l.processes, l.servers
	l.processes, l.servers = nil, map[string][]*server{}
	l.mu.Unlock()

	errs := make([]error, 0, len(servers)+len(processes)+2)
	for _, list := range servers {
		errs = append(errs, closeServers(list))
	}
	for _, p := range processes {
		errs = append(errs, p.Kill())
	}
	l.starter.close()
	errs = append(errs, l.journal.close(), Cleanup(l.prefix))
	return errors.Join(errs...)
}

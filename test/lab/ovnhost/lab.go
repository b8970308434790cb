// Package ovnhost creates a small OVN installation from real parts: a central part (northbound and southbound
// database, northd) and any number of hosts. Each host is a network namespace with its own Open
// vSwitch, in userspace mode, and its own ovn-controller. Geneve tunnels connect the hosts. Pods can
// be attached to the hosts, and traffic can be sent between them.
//
// All parts of a lab are in network namespaces of the lab and in one directory, and are recorded before
// they are used. So another process can remove a lab completely if its owner was killed.
//
// The package needs root and the Debian packages that Missing returns. It does not know Netvirt: the
// caller writes the databases.
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

// stateRoot has a directory for every lab of this machine. The path is short, because the path of a unix
// socket has at most 107 characters.
const stateRoot = "/run/ovnhost"

// startTimeout bounds the start of a whole lab.
const startTimeout = 2 * time.Minute

// labName matches a lab's prefix and a host's name.
var labName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$`)

// Config configures a lab.
type Config struct {
	// Prefix is the name of the lab and the prefix of its network namespaces. Prefixes are unique.
	Prefix string
	// Hosts are the hosts' names, which are also their system-id, hostname and chassis name.
	Hosts []string
	// Survive keeps the lab running when its owner ends; Cleanup removes it. Otherwise its processes
	// end with their parent.
	Survive bool
	// SwitchesOnly leaves OVN out: the hosts have switches for another controller, and attaching a pod
	// waits for nothing.
	SwitchesOnly bool
	// Log receives every process and pod.
	Log *slog.Logger
}

// Lab is a running OVN installation. Its methods may be called concurrently.
type Lab struct {
	// Dir has the databases, sockets and logs; Close removes it.
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

// Start creates a lab, and returns when all parts are connected: every host is a chassis in the southbound
// database and follows the northbound one. A lab that cannot be started is removed, except with
// Survive: then it stays for its logs, until Cleanup.
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

// Sync waits until the switches of all hosts have the current content of the northbound database.
func (l *Lab) Sync(ctx context.Context) error {
	_, err := l.NBCtl(ctx, "--wait=hv", "sync")
	return err
}

// Logs returns the directory with one log per process.
func (l *Lab) Logs() string { return filepath.Join(l.Dir, "logs") }

// Host returns the host with that name, or nil.
func (l *Lab) Host(name string) *Host {
	for _, h := range l.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// Close ends every process of the lab, waits for it, and removes the lab's namespaces, links and files. The
// lab must not be used afterwards.
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

package ovsdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

const startTimeout = 2 * time.Minute

// Process is an ovsdb-server with its database, for programs that are not tests. Tests use Server.
type Process struct {
	dir    string
	schema string // for Schema
	args   []string
	proc   *exec.Cmd // nil while it does not run
	log    bytes.Buffer
	disk   bool // dir is a file system of its own
}

// Run starts a server with an empty database in a new folder, and with further arguments. Close ends it.
func Run(args ...string) (*Process, error) {
	p, err := newProcess(args)
	if err != nil {
		return nil, err
	}
	return p.start()
}

// newProcess returns a server that does not run yet, with its folder.
func newProcess(args []string) (*Process, error) {
	// The path of a unix socket has at most 108 characters.
	dir, err := os.MkdirTemp("", "ovsdb")
	if err != nil {
		return nil, fmt.Errorf("make a folder for ovsdb-server: %w", err)
	}
	return &Process{dir: dir, schema: northbound, args: args}, nil
}

func (p *Process) start() (*Process, error) {
	if err := p.Wipe(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close kills the server and removes its database.
func (p *Process) Close() error {
	return errors.Join(p.Kill(), p.unmount(), os.RemoveAll(p.dir))
}

// Endpoint returns the server's address in the form of OVN: unix:PATH.
func (p *Process) Endpoint() string { return "unix:" + p.socket() }

// Log returns the output of the server. It must be called only while the server does not run.
func (p *Process) Log() string { return p.log.String() }

func (p *Process) socket() string { return filepath.Join(p.dir, "nb.sock") }

func (p *Process) control() string { return filepath.Join(p.dir, "nb.ctl") }

// Database returns the path of the database, to which the server appends each transaction.
func (p *Process) Database() string { return filepath.Join(p.dir, "nb.db") }

// Wipe restarts the server with an empty database.
func (p *Process) Wipe() error { return p.create("create", p.Database(), Schema(p.schema)) }

// create restarts the server with a database that ovsdb-tool creates with the arguments.
func (p *Process) create(args ...string) error {
	if err := p.Kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(p.Database()); err != nil {
		return fmt.Errorf("remove the northbound database: %w", err)
	}
	out, err := exec.Command("ovsdb-tool", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("create a northbound database: %w: %s; install the Debian packages openvswitch-switch and ovn-common", err, out)
	}
	return p.Restart()
}

// Control runs a command of ovs-appctl on the server, and returns its output.
func (p *Process) Control(command ...string) (string, error) {
	out, err := exec.Command("ovs-appctl", append([]string{"--timeout=60", "--target=" + p.control()}, command...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovs-appctl %v: %w: %s", command, err, out)
	}
	return string(out), nil
}

// Restart ends the server with SIGKILL if it runs, and starts it with the same database.
func (p *Process) Restart() error {
	if err := p.Kill(); err != nil {
		return err
	}
	args := append([]string{
		p.Database(), "--remote=punix:" + p.socket(), "--unixctl=" + p.control(), "-vconsole:warn",
	}, p.args...)
	proc := exec.Command("ovsdb-server", args...)
	proc.Stdout, proc.Stderr = &p.log, &p.log
	proc.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := proc.Start(); err != nil {
		return fmt.Errorf("start ovsdb-server: %w; install the Debian package openvswitch-switch", err)
	}
	p.proc = proc
	return p.answers()
}

// ask sends the server a request, and waits for the answer.
func (p *Process) ask(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", p.socket())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(`{"method":"list_dbs","params":[],"id":0}`)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// answers waits until the server answers. The server of Open vSwitch 3.5 accepts connections before it reads its database, and
// ends if it refuses the data.
func (p *Process) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		err := p.ask(ctx)
		if err == nil {
			return nil
		}
		if p.hasEnded() {
			return fmt.Errorf("start ovsdb-server: it has ended: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("start ovsdb-server: it does not listen: %w", err)
		case <-tick.C:
		}
	}
}

// hasEnded reports whether the server has ended by itself.
func (p *Process) hasEnded() bool {
	var ended unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.proc.Process.Pid, &ended, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && ended.Signo != 0
}

// Kill ends the server with SIGKILL, and waits until it has ended.
func (p *Process) Kill() error {
	if p.proc == nil {
		return nil
	}
	if err := p.proc.Process.Kill(); err != nil {
		return fmt.Errorf("kill ovsdb-server: %w", err)
	}
	_ = p.proc.Wait() // the error says that it was killed
	p.proc = nil
	// The remaining socket belongs to the ended process.
	_ = os.Remove(p.socket())
	return nil
}

// Signal sends the server a signal.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.proc == nil {
		return errors.New("signal ovsdb-server: it does not run")
	}
	return child.Signal(p.proc.Process, sig)
}

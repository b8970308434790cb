package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// prepare looks for all that the demo needs before it starts anything, installs
// missing Debian packages, and removes an earlier demo.
func (s *story) prepare(ctx context.Context) error {
	if err := program.Root(); err != nil {
		return err
	}
	bridge, err := filepath.Abs(s.bridge)
	if err != nil {
		return fmt.Errorf("find %s: %w", s.bridge, err)
	}
	if _, err := os.Stat(bridge); err != nil {
		return fmt.Errorf("find the bridge's program: %w: make build makes it", err)
	}
	s.bridge = bridge
	if err := program.InstallPackages(ctx, s.screen, ovnhost.Missing); err != nil {
		return err
	}
	if ovnhost.Exists(prefix) {
		s.screen.Say("an earlier demo is there: it is removed first")
		if err := ovnhost.Cleanup(prefix); err != nil {
			return err
		}
	}
	return s.checkPort(ctx)
}

func (s *story) checkPort(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("find a free port for the bridge: %w: end who listens there, or go run ./test/demo/ovn up --listen 127.0.0.1:PORT", err)
	}
	return l.Close()
}

func (s *story) startLab(ctx context.Context) (err error) {
	s.lab, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: prefix, Hosts: []string{"host1", "host2"}, Survive: true})
	if err != nil {
		return err
	}
	versions, err := ovnhost.Versions(ctx)
	if err != nil {
		return err
	}
	s.screen.Say("programs: %s", versions)
	s.screen.Say("northbound database: %s", s.lab.NB.Remote)
	for _, h := range s.lab.Hosts {
		s.screen.Say("%s: address %s, namespace %s", h.Name, h.Address, s.lab.Namespace(h.Name))
	}
	return nil
}

func (s *story) startBridge(ctx context.Context) error {
	_, err := s.lab.Launch(ctx, ovnhost.Command{
		Name: "coe-bridge",
		Argv: []string{
			s.bridge, "serve", "--backend", "ovn", "--ovn-nb", s.lab.NB.Remote,
			"--data-dir", filepath.Join(s.lab.Dir, "data"), "--listen", s.listen, "--dev",
		},
		Ready: s.rest.ready,
	})
	if err != nil {
		return err
	}
	s.screen.Say("RESTCONF: %s/restconf, user %s, password %s", s.rest.base, user, password)
	return nil
}

// runBridge runs a command of the bridge against the running one.
func (s *story) runBridge(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.bridge, append(args, "--server", s.rest.base, "--user", user)...)
	cmd.Env = append(os.Environ(), "COE_BRIDGE_PASSWORD="+password)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", cmd, err, out)
	}
	return string(out), nil
}

// sayNext says what to try now.
func (s *story) sayNext() {
	s.screen.Say(`all is left running. Try:
  export COE_BRIDGE_PASSWORD=%[1]s
  bin/coe-bridge status --server %[2]s
  bin/coe-bridge get interfaces --server %[2]s
  curl -w '\n' -u %[3]s:%[1]s %[2]s/restconf/operational/elan:elan-instances
  ip netns exec '%[4]s' ping -c 3 %[5]s
  ip netns exec '%[4]s' curl %[6]s
  ovn-nbctl --db=%[7]s show
  make demo-down`,
		password, s.rest.base, user,
		s.lab.Namespace(s.till.String()), s.front.port.Address.Addr(), serviceURL, s.lab.NB.Remote)
}

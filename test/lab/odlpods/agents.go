package odlpods

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/coe-bridge/coe-bridge/cni/install"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// StartAgents starts an agent on each host.
func (l *Lab) StartAgents(ctx context.Context) error {
	for _, h := range l.Hosts {
		if err := l.StartAgent(ctx, h, OpenDaylight); err != nil {
			return err
		}
	}
	return nil
}

// StartAgent starts or restarts the agent of a host with a backend.
func (l *Lab) StartAgent(ctx context.Context, h *ovnhost.Host, backend string) error {
	if before := l.Agents[h.Name]; before != nil {
		if err := before.Terminate(); err != nil {
			return err
		}
	} else if err := l.installPlugin(h); err != nil {
		return err
	}
	process, err := l.Launch(ctx, ovnhost.Command{
		Name: h.Name + "/agent", Pod: h.Name, Argv: l.agent(h, backend),
		Ready: func(ctx context.Context) error { return l.asked(ctx, h.Name, "/healthz") },
	})
	if err != nil {
		return err
	}
	l.Agents[h.Name] = process
	return nil
}

// installPlugin installs a plugin for a host that calls the host's agent.
func (l *Lab) installPlugin(h *ovnhost.Host) error {
	return install.Config{
		Plugin: filepath.Join(l.bin, install.PluginName), BinDir: h.Dir, Socket: socket(h), Log: slog.New(slog.DiscardHandler),
	}.InstallPlugin()
}

// agent returns the command line of a host's agent.
func (l *Lab) agent(h *ovnhost.Host, backend string) []string {
	argv := []string{
		l.program(), "agent", "--bridge", l.URL(), "--node-address", h.Address.String(), "--user", agent, "--password-file", l.users.password(agent),
		"--backend", backend, "--ovs-db", h.OVSDB.Remote,
		"--socket", socket(h), "--state-dir", filepath.Join(h.Dir, "agent"), "--call-deadline", l.deadline.String(), "--sweep-interval", "5s",
		"--ovs-run-dir", h.Dir,
	}
	if backend == OpenDaylight {
		argv = append(argv, "--ovs-manager", l.ofMembers((*odl.Controller).Managers))
	}
	return argv
}

func socket(h *ovnhost.Host) string { return filepath.Join(h.Dir, "cni.sock") }

// asked reads the health of a host's agent.
func (l *Lab) asked(ctx context.Context, host, path string) error {
	_, err := l.HTTPGet(ctx, host, "http://127.0.0.1:8182"+path)
	return err
}

// Ready fails if the agent of a host is not ready.
func (l *Lab) Ready(ctx context.Context, host string) error { return l.asked(ctx, host, "/readyz") }

// AwaitNetwork waits until OpenDaylight programs the switches of all hosts, and tunnels connect them.
func (l *Lab) AwaitNetwork(ctx context.Context) error {
	for _, h := range l.Hosts {
		if err := Await(ctx, func(ctx context.Context) error { return l.Ready(ctx, h.Name) }); err != nil {
			return err
		}
	}
	return l.Controller.AwaitTunnels(ctx)
}

// CleanUp stops the agent of a host, and runs its cleanup.
func (l *Lab) CleanUp(ctx context.Context, host string) error {
	if err := l.Agents[host].Terminate(); err != nil {
		return err
	}
	_, err := l.Exec(ctx, host, append(l.agent(l.Host(host), OpenDaylight), "--cleanup")...)
	return err
}

// Doctor returns the findings of coe-bridge doctor on a host as JSON. It fails if a check fails.
func (l *Lab) Doctor(ctx context.Context, host string) (string, error) {
	h := l.Host(host)
	return l.Exec(ctx, host, l.program(), "doctor", "--bridge", l.URL(), "--node-address", h.Address.String(), "--user", agent,
		"--password-file", l.users.password(agent), "--backend", "odl", "--ovs-db", h.OVSDB.Remote, "--socket", socket(h),
		"--state-dir", filepath.Join(h.Dir, "agent"), "--ovs-run-dir", h.Dir, "--ovn-run-dir", h.Dir, "--cni-bin-dir", l.bin, "-o", "json")
}

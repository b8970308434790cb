package dhcpclient

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// renewWithin bounds Client.Renew.
const renewWithin = 4 * time.Minute

// Client is a DHCP client on the link eth0 of a pod: udhcpc of BusyBox.
type Client struct {
	lab              *ovnhost.Lab
	pod, script, out string
}

// applies configures the link with what the client got. A client that knows classless routes ignores the router.
const applies = `#!/bin/busybox sh
env > %[1]s.new
echo event=$1 >> %[1]s.new
mv %[1]s.new %[1]s
case $1 in
bound|renew)
	ip addr replace $ip/$mask dev eth0
	ip link set eth0 mtu $mtu
	set -- $staticroutes
	while [ $# -gt 1 ]; do
		if [ $2 = 0.0.0.0 ]; then ip route replace $1 dev eth0; else ip route replace $1 via $2 dev eth0; fi
		shift 2
	done
esac
`

// New returns a client for a pod. It keeps its files in dir.
func New(lab *ovnhost.Lab, pod, dir string) (*Client, error) {
	c := &Client{lab: lab, pod: pod, script: filepath.Join(dir, "script"), out: filepath.Join(dir, "out")}
	if err := os.WriteFile(c.script, fmt.Appendf(nil, applies, c.out), 0o700); err != nil {
		return nil, fmt.Errorf("write script of DHCP client: %w", err)
	}
	return c, nil
}

// Run removes the IPv4 addresses of the link, and with them its routes, and runs the client with options of udhcpc.
func (c *Client) Run(ctx context.Context, options ...string) error {
	if _, err := c.lab.Exec(ctx, c.pod, "ip", "-4", "addr", "flush", "dev", "eth0"); err != nil {
		return err
	}
	_, err := c.lab.Exec(ctx, c.pod, c.argv(options...)...)
	return err
}

func (c *Client) argv(options ...string) []string {
	return slices.Concat([]string{"busybox", "udhcpc", "-f", "-i", "eth0", "-s", c.script, "-O", "staticroutes", "-O", "mtu"}, options)
}

// Renew runs the client until it has a lease, and then until it has renewed the lease, for which it asks the server alone.
func (c *Client) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	if err := os.Remove(c.out); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove output of DHCP client: %w", err)
	}
	is := func(event string) func(context.Context) error {
		return func(context.Context) error {
			got, err := c.Got()
			if err == nil && got["event"] != event {
				err = fmt.Errorf("the last event of the DHCP client is %q, want %s", got["event"], event)
			}
			return err
		}
	}
	running, err := c.lab.Launch(ctx, ovnhost.Command{Name: "udhcpc", Pod: c.pod, Argv: c.argv(), Ready: is("bound")})
	if err != nil {
		return err
	}
	pid, err := running.PID()
	if err == nil {
		err = syscall.Kill(pid, syscall.SIGUSR1)
	}
	if err == nil {
		err = ovnhost.Poll(ctx, is("renew"))
	}
	return errors.Join(err, running.Kill())
}

// Got returns what the client got last, by the names of udhcpc, and the last event.
func (c *Client) Got() (map[string]string, error) {
	text, err := os.ReadFile(c.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read output of DHCP client: %w", err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		all[name] = value
	}
	return all, nil
}

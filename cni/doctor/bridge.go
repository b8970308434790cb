package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// bridge checks that a replica serves new pods.
func (c *Config) bridge(ctx context.Context, url string) (string, error) {
	reached, err := c.Uplink.Reach(ctx, url)
	switch {
	case err != nil:
		return "", failed(err, mendReach(err))
	case reached.Warning != "":
		return "", failed(errors.New(reached.Warning), "coe-bridge status says why; it names a missing permission, for example")
	}
	return "it serves", nil
}

func mendReach(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		named   x509.HostnameError
	)
	switch {
	case errors.As(err, &unknown):
		return "name the CA of the bridge's certificate with --ca-file"
	case errors.As(err, &invalid):
		return "renew the bridge's certificate if it is not valid now, and check the clock of this node"
	case errors.As(err, &named):
		return "use a name in --bridge that is in the bridge's certificate"
	}
	return "check that coe-bridge serve runs there, and that this node can connect to its port"
}

// credentials checks that a replica lets the agent follow its node.
func (c *Config) credentials(ctx context.Context, url string) (string, error) {
	if _, err := c.Uplink.Reach(ctx, url); err != nil {
		return "", unknown(errors.New("the bridge must be reachable first"))
	}
	err := c.Uplink.Login(ctx, url)
	switch {
	case err == nil:
		return "the agent may follow its node", nil
	case strings.Contains(err.Error(), " 403 "):
		return "", failed(err, "check that the bridge knows this node by its --node-address (coe-bridge get nodes), and that the certificate or token belongs to this node")
	case strings.Contains(err.Error(), " 401 ") && c.Anonymous:
		return "", failed(err, "give the agent credentials: --cert and --key, --token-file, or --user and --password-file")
	case strings.Contains(err.Error(), " 401 "):
		return "", failed(err, "renew the certificate, token or password of the agent: --cert, --token-file, --password-file")
	}
	return "", failed(err, "check the log of the bridge")
}

// podNetwork checks that the node itself has joined the pod network.
func (c *Config) podNetwork(context.Context) (string, error) {
	place, err := uplink.SavedPlace(c.StateDir)
	switch {
	case err != nil:
		return "", unknown(errors.New("the state directory must be readable first"))
	case place == nil:
		return "", warning(errors.New("the bridge has given this node no place in the pod network"),
			"start the agent, and check that the bridge knows this node by its --node-address (coe-bridge get nodes)")
	case place.Isolated:
		return "namespaces are isolated: the agent makes a port in each namespace that has pods on this node; there is nothing to initialise", nil
	}
	if _, err := links.MTUOf(c.Node, place.Address); err != nil {
		return "", warning(fmt.Errorf("the node has no management port: %w", err), "start the agent, which makes it; if it runs, check its log")
	}
	return fmt.Sprintf("this node is at %s: the bridge has made the routers and switches, and the agent the management port; there is nothing to initialise", place.Address), nil
}

// Limits for the difference between two clocks. If it is larger, certificates and tokens
// may be rejected as not yet valid or expired.
const (
	tolerated  = 2 * time.Second // the Date header has whole seconds
	intolerant = 30 * time.Second
)

// clock compares the node's clock with the clock of the first bridge that answers, and
// checks that it is synchronised.
func (c *Config) clock(ctx context.Context) (string, error) {
	for _, url := range c.Bridges {
		reached, err := c.Uplink.Reach(ctx, url)
		if err != nil {
			continue
		}
		const mend = "synchronise the clocks of nodes and bridges: run chrony or another NTP client"
		differ := time.Since(reached.Time).Abs()
		switch {
		case differ > intolerant:
			return "", failed(fmt.Errorf("it differs from the bridge's clock by %s", differ.Round(time.Second)), mend)
		case differ > tolerated:
			return "", warning(fmt.Errorf("it differs from the bridge's clock by %s", differ.Round(time.Second)), mend)
		}
		if !synchronised() {
			return "it agrees with the bridge's clock, but no NTP client synchronises it", nil
		}
		return "it agrees with the bridge's clock and is synchronised", nil
	}
	return "", unknown(errors.New("no bridge answers, so it cannot be compared"))
}

// synchronised reports whether the kernel considers its clock synchronised.
func synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

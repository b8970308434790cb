package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// bridge looks whether a replica serves.
func (c *Config) bridge(ctx context.Context, url string) (string, error) {
	if _, err := c.Uplink.Reach(ctx, url); err != nil {
		return "", failed(err, mendReach(err))
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
		return "name the authority of the bridge's certificate with --ca-file"
	case errors.As(err, &invalid):
		return "give the bridge a certificate that is good now, and see that this node's clock is right"
	case errors.As(err, &named):
		return "name the bridge with --bridge as its certificate does"
	}
	return "see that coe-bridge serve runs there, and that its port is open to this node"
}

// credentials looks whether a replica lets the agent follow its node.
func (c *Config) credentials(ctx context.Context, url string) (string, error) {
	if _, err := c.Uplink.Reach(ctx, url); err != nil {
		return "", unknown(errors.New("it has to be reached first"))
	}
	err := c.Uplink.Login(ctx, url)
	switch {
	case err == nil:
		return "the node may be followed", nil
	case strings.Contains(err.Error(), " 403 "):
		return "", failed(err, "see that the bridge knows this node by its name with --node-address (coe-bridge get nodes), and that certificate or token is this node's")
	case strings.Contains(err.Error(), " 401 "):
		return "", failed(err, "renew certificate, token or password of the agent: --cert, --token-file, --password-file")
	}
	return "", failed(err, "see the log of the bridge")
}

// Clocks may differ by so much: where it is more, certificates and tokens are not yet
// good, or no more.
const (
	tolerated  = 2 * time.Second // Date has whole seconds
	intolerant = 30 * time.Second
)

// clock compares the node's clock with the first bridge's that answers, and asks the
// kernel whether somebody keeps it right.
func (c *Config) clock(ctx context.Context) (string, error) {
	for _, url := range c.Bridges {
		there, err := c.Uplink.Reach(ctx, url)
		if err != nil {
			continue
		}
		const mend = "keep the clocks of nodes and bridges right: run chrony or another client of NTP"
		differ := time.Since(there).Abs()
		switch {
		case differ > intolerant:
			return "", failed(fmt.Errorf("it differs from the bridge's by %s", differ.Round(time.Second)), mend)
		case differ > tolerated:
			return "", warning(fmt.Errorf("it differs from the bridge's by %s", differ.Round(time.Second)), mend)
		}
		if !synchronised() {
			return "it agrees with the bridge's; nothing on this node keeps it right (no NTP client does)", nil
		}
		return "it agrees with the bridge's, and is kept right", nil
	}
	return "", unknown(errors.New("no bridge answers to compare it with"))
}

// synchronised tells whether the kernel is told by somebody that the clock is right.
func synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

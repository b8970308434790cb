package policies

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/sctp"
)

// A probe of SCTP is an INIT, and the cell is open if it arrives. Its source port identifies the probe.

// listenSCTP lets the pod receive SCTP until the end of the test.
func (c *cluster) listenSCTP(p *pod) {
	c.t.Helper()
	require.NoError(c.t, c.lab.In(p.device(), func() (err error) {
		p.sctp, err = sctp.Listen()
		return err
	}))
	c.t.Cleanup(func() { _ = p.sctp.Close() })
}

// nextSource returns a source port that no recent probe has.
func (c *cluster) nextSource() uint16 {
	const first, last = 20000, 60000
	c.source = max(first, c.source+1)
	if c.source == last {
		c.source = first
	}
	return c.source
}

// receiveInits sets which of the cells, by source port, are open.
func (c *cluster) receiveInits(sent map[uint16]*cell) error {
	for _, p := range c.ends() {
		received, err := p.sctp.Received()
		if err != nil {
			return fmt.Errorf("pod %s: %w", p, err)
		}
		for _, packet := range received {
			one := sent[packet.From.Port()]
			if one != nil && one.to == p && one.source == packet.From.Addr() && one.port.Number == packet.To {
				one.open = true
			}
		}
	}
	return nil
}

package odlports

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// add lets an ADD of a pod wait for a time, with a new port, and removes the port.
func (n *node) add(d time.Duration) {
	n.t.Helper()
	n.ports = append(n.ports, ofPod)
	n.numbers[ofPod.Name] += 100
	n.pass(d)
	n.ports = n.ports[:len(n.ports)-1]
	n.pass(10 * time.Second)
}

// OpenDaylight learns of no port of repeated ADDs: the switch connects again after the second one, then later and later. When OpenDaylight has learned of a port, the
// time is short again.
func TestOverlookedPorts(t *testing.T) {
	onNode(t, []Port{other}, func(t *testing.T, n *node) {
		n.stages[other.Name] = openflow.Complete
		for range 40 {
			n.add(30 * time.Second)
		}
		require.Equal(t, []int{40, 110, 270, 590, 1230}, n.reconnected)

		require.True(t, n.asks)
		n.empty = true
		n.look()
		require.False(t, n.asks, "OpenDaylight connects again anyway")
		n.empty = false
		n.look()

		n.stages[ofPod.Name], n.reconnected, n.begun = openflow.Tagged, nil, time.Now()
		n.add(30 * time.Second)
		require.False(t, n.asks)
		n.stages[ofPod.Name] = openflow.Unknown
		n.add(30 * time.Second)
		n.add(30 * time.Second)
		require.Equal(t, []int{80}, n.reconnected)
		require.Empty(t, n.replaced)
	})
}

// The switch does not connect again for one port, nor while OpenDaylight learns of others, programs nothing, or gives no answer.
func TestOverlooksNotAll(t *testing.T) {
	for name, each := range map[string]func(n *node, i int){
		"one port":         func(n *node, _ int) { n.numbers[ofPod.Name] = 100 },
		"learns":           func(n *node, i int) { n.stages[ofPod.Name] = openflow.Stage(i % 2) },
		"programs nothing": func(n *node, i int) { n.empty = i%2 == 1 },
		"no answer":        func(n *node, _ int) { n.failure = context.DeadlineExceeded },
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, []Port{other}, func(t *testing.T, n *node) {
				n.stages[other.Name] = openflow.Complete
				for i := range 20 {
					n.numbers[ofPod.Name] += 100
					each(n, i)
					n.ports = []Port{other, ofPod}
					n.pass(20 * time.Second)
					n.ports = n.ports[:1]
					n.pass(10 * time.Second)
				}
				require.Empty(t, n.reconnected)
			})
		})
	}
}

package odlports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// node is a node whose ports are looked at as Next asks for it, on the clock of a bubble. Its switch has a tunnel too.
type node struct {
	*Ports
	t     *testing.T
	begun time.Time
	log   bytes.Buffer
	// ports have the stages. OpenDaylight answers failure, or as if it had programmed nothing if it is empty.
	ports   []Port
	stages  map[string]openflow.Stage
	empty   bool
	failure error
	looks   int
	// replaced says which ports were replaced, and after how many seconds. broken is the error of a replacement, and kept is set if the switch does not
	// release the port.
	numbers  map[string]uint32
	replaced []string
	broken   error
	kept     bool
	// reconnected says after how many seconds new connections were asked for, and asks whether one is.
	reconnected []int
	asks        bool
}

const tunnel = 1

// onNode runs a test with a node that has ports.
func onNode(t *testing.T, ports []Port, test func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, begun: time.Now(), ports: ports, stages: map[string]openflow.Stage{}, numbers: map[string]uint32{}}
		for i, p := range ports {
			n.numbers[p.Name] = uint32(10 * (i + 1))
		}
		n.Ports = New(Config{Switch: n, Programmed: n.programmed, Log: slog.New(slog.NewTextHandler(&n.log, nil))})
		test(t, n)
	})
}

func (n *node) Number(_ context.Context, name string) (uint32, error) {
	if number := n.numbers[name]; number != 0 {
		return number, nil
	}
	return 0, errors.New("the switch has not opened the port")
}

func (*node) AwaitsFlows() error { return nil }

func (n *node) Reconnect(asks bool) {
	if n.asks = asks; asks {
		n.reconnected = append(n.reconnected, int(time.Since(n.begun).Seconds()))
	}
}

func (n *node) Replace(ctx context.Context, name string, number uint32, gone func(context.Context)) (released bool, err error) {
	require.Equal(n.t, n.numbers[name], number)
	n.replaced = append(n.replaced, fmt.Sprintf("%s %.0f", name, time.Since(n.begun).Seconds()))
	if n.kept {
		return false, n.broken
	}
	delete(n.numbers, name)
	gone(ctx)
	n.numbers[name] = number + 1
	return true, n.broken
}

func (n *node) programmed(ctx context.Context, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
	if addresses != nil {
		n.looks++
	}
	if n.failure != nil || n.empty {
		return nil, n.failure
	}
	known := map[uint32]openflow.Stage{tunnel: openflow.Tagged}
	for name, stage := range n.stages {
		if number := n.numbers[name]; number != 0 && stage > openflow.Unknown {
			known[number] = stage
		}
	}
	return known, ctx.Err()
}

// look looks at the ports once.
func (n *node) look() {
	n.t.Helper()
	before := len(n.replaced)
	changed, err := n.Ports.Replace(n.t.Context(), n.ports)
	switch tried := len(n.replaced) > before; {
	case tried:
		require.Equal(n.t, !n.kept, changed)
		require.ErrorIs(n.t, err, n.broken)
	case errors.Is(n.failure, fs.ErrNotExist):
		require.NoError(n.t, err)
	default:
		require.False(n.t, changed)
		require.ErrorIs(n.t, err, n.failure)
	}
}

// pass lets a time pass with looks, and returns their number. The last look is at its end.
func (n *node) pass(d time.Duration) (looks int) {
	n.t.Helper()
	before, end := n.looks, time.Now().Add(d)
	for n.look(); time.Now().Before(end); n.look() {
		<-time.After(min(n.Next(), time.Until(end)))
	}
	return n.looks - before
}

// The ports of the tests. The other one has everything.
var (
	ofNode = Port{Name: "a"}
	ofPod  = Port{Name: "a", Container: "sandbox"}
	other  = Port{Name: "other"}
)

// A port of the node that OpenDaylight does not program is replaced, and the next ones later and later. Its time begins again when it is programmed for long.
func TestUnprogrammedPort(t *testing.T) {
	onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
		n.stages["other"] = openflow.Complete
		n.pass(time.Hour / 2)
		require.Equal(t, []string{"a 30", "a 95", "a 220", "a 465", "a 950", "a 1435"}, n.replaced)
		require.Empty(t, n.reconnected, "it is one port")

		n.stages["a"], n.replaced = openflow.Complete, nil
		n.pass(programmedWithinMost - time.Minute)
		n.stages["a"] = openflow.Tagged
		n.pass(programmedWithinMost - time.Minute)
		require.Empty(t, n.replaced, "it was programmed for a short time only")
		n.pass(2 * time.Minute)
		require.Len(t, n.replaced, 1)

		n.stages["a"], n.replaced = openflow.Complete, nil
		n.pass(programmedWithinMost + time.Minute)
		n.stages["a"] = openflow.Tagged
		n.pass(quietEvery + programmedWithin + lookEvery)
		require.Len(t, n.replaced, 1, "it was programmed for long")
	})
}

// A replacement counts if the switch has released the port, also if it failed. Otherwise it is tried again after the same time.
func TestFailedReplacement(t *testing.T) {
	for kept, replaced := range map[bool][]string{true: {"a 30", "a 65", "a 100", "a 135"}, false: {"a 30", "a 95"}} {
		onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
			n.stages["a"], n.stages["other"] = openflow.Tagged, openflow.Complete
			n.kept, n.broken = kept, errors.New("Open vSwitch does not answer")
			n.pass(150 * time.Second)
			require.Equal(t, replaced, n.replaced)
		})
	}
}

// The port of a pod is replaced four times without effect. The log says that it is not replaced again, each time that it has lost flows. It
// is replaced again when it has been programmed for long. A port of the node is replaced on and on.
func TestSpentPort(t *testing.T) {
	const spent = "not replaced again"
	onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
		n.stages["a"], n.stages["other"] = openflow.Led, openflow.Reached
		n.pass(time.Hour)
		require.Greater(t, len(n.replaced), replacedMost+1)
		require.NotContains(t, n.log.String(), spent)
	})
	onNode(t, []Port{ofPod, other}, func(t *testing.T, n *node) {
		n.stages["a"], n.stages["other"] = openflow.Led, openflow.Reached
		n.pass(time.Hour)
		require.Len(t, n.replaced, replacedMost)
		require.Equal(t, 1, strings.Count(n.log.String(), spent))
		require.LessOrEqual(t, n.pass(time.Hour), int(time.Hour/quietEvery)+1, "nothing waits")

		n.stages["a"] = openflow.Complete
		n.pass(time.Minute)
		n.stages["a"] = openflow.Led
		n.pass(time.Hour)
		require.Len(t, n.replaced, replacedMost)
		require.Equal(t, 2, strings.Count(n.log.String(), spent))

		n.stages["a"] = openflow.Complete
		n.pass(programmedWithinMost + time.Minute)
		n.stages["a"] = openflow.Led
		n.pass(time.Hour)
		require.Len(t, n.replaced, 2*replacedMost)
	})
}

// OpenDaylight has the whole time for each stage of a port. A port that goes back waits on.
func TestStagesOfPorts(t *testing.T) {
	onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
		n.stages["other"] = openflow.Complete
		n.pass(programmedWithin - lookEvery)
		n.stages["a"] = openflow.Tagged
		n.pass(lookEvery)
		n.stages["a"] = openflow.Unknown
		n.pass(lookEvery)
		n.stages["a"] = openflow.Tagged
		n.pass(time.Minute)
		require.Equal(t, []string{"a 55"}, n.replaced)
	})
}

// A time in which no look sees a port does not count, and the time before it does. If looks do not see any port for long, they become rare.
func TestUnseenPort(t *testing.T) {
	for name, hide := range map[string]func(n *node, hidden bool){
		"OpenDaylight does not answer": func(n *node, hidden bool) {
			if n.failure = nil; hidden {
				n.failure = context.DeadlineExceeded
			}
		},
		"the switch starts": func(n *node, hidden bool) {
			if n.failure = nil; hidden {
				n.failure = fs.ErrNotExist
			}
		},
		"the switch does not have the port": func(n *node, hidden bool) {
			if n.numbers["a"] = 11; hidden {
				delete(n.numbers, "a")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
				n.stages["a"], n.stages["other"] = openflow.Tagged, openflow.Complete
				n.pass(programmedWithin - 2*lookEvery)
				hide(n, true)
				<-time.After(n.Next())
				n.look()
				hide(n, false)
				<-time.After(n.Next())
				n.pass(lookEvery)
				require.Equal(t, []string{"a 35"}, n.replaced)

				n.pass(2*programmedWithin - 2*lookEvery)
				hide(n, true)
				n.pass(programmedWithinMost)
				require.LessOrEqual(t, n.pass(time.Hour), int(time.Hour/quietEvery)+1)
				require.Len(t, n.replaced, 1)
				hide(n, false)
				n.pass(lookEvery)
				require.Len(t, n.replaced, 2)
			})
		})
	}
}

// The time of a stage begins again when OpenDaylight has lost all flows of the switch.
func TestLostFlows(t *testing.T) {
	onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
		n.stages["a"], n.stages["other"] = openflow.Tagged, openflow.Complete
		n.pass(programmedWithin - lookEvery)
		n.empty = true
		n.pass(lookEvery)
		n.empty = false
		n.pass(time.Minute)
		require.Equal(t, []string{"a 60"}, n.replaced)
	})
}

// A lost flow is seen although nothing changes on the node. Ports are replaced one after the other.
func TestQuietNode(t *testing.T) {
	pod := Port{Name: "pod", Container: "sandbox"}
	onNode(t, []Port{ofNode, {Name: "b"}, pod, other}, func(t *testing.T, n *node) {
		for _, p := range n.ports {
			n.stages[p.Name] = openflow.Reached
		}
		n.pass(30 * time.Minute)
		<-time.After(time.Second)
		n.stages["a"], n.stages["b"], n.stages["pod"] = openflow.Tagged, openflow.Led, openflow.Led
		<-time.After(n.Next())
		n.pass(time.Minute)
		require.Equal(t, []string{"a 1861", "b 1863", "pod 1865"}, n.replaced)
	})
}

// Ports of tunnels have a tag although OpenDaylight programs no other port. It replaces none then, and the looks become rare.
func TestTunnelsDoNotCount(t *testing.T) {
	onNode(t, []Port{ofNode, ofPod}, func(t *testing.T, n *node) {
		n.pass(programmedWithinMost)
		require.LessOrEqual(t, n.pass(time.Hour), int(time.Hour/quietEvery)+1)
		require.Empty(t, n.replaced)
	})
}

// While a port waits, all are looked at soon again. Else they are looked at from time to time.
func TestLooks(t *testing.T) {
	onNode(t, []Port{ofNode, other}, func(t *testing.T, n *node) {
		require.Equal(t, quietEvery, n.Next(), "no look has been made")
		n.stages["a"], n.stages["other"] = openflow.Complete, openflow.Complete
		n.look()
		require.Equal(t, quietEvery, n.Next())
		n.stages["a"] = openflow.Tagged
		n.look()
		require.Equal(t, lookEvery, n.Next())
		n.stages["a"] = openflow.Complete
		n.look()
		require.Equal(t, quietEvery, n.Next())
		n.ports = append(n.ports, Port{Name: "new"})
		n.look()
		require.Equal(t, lookEvery, n.Next())
		n.ports = n.ports[:2]
		n.look()
		require.Equal(t, quietEvery, n.Next())
	})
}

// A new port does not help while no port at all has what a port lacks. ADDs look at what else a pod lacks than packets from tunnels, until its
// port is replaced: nobody awaits the new one.
func TestStageOf(t *testing.T) {
	for name, c := range map[string]struct {
		at, other  openflow.Stage
		node, pods openflow.Stage
	}{
		"OpenDaylight knows no port":             {openflow.Unknown, openflow.Unknown, unseen, unseen},
		"it knows another port":                  {openflow.Unknown, openflow.Tagged, openflow.Unknown, unseen},
		"it leads to another port":               {openflow.Unknown, openflow.Complete, openflow.Unknown, unseen},
		"it knows the port":                      {openflow.Tagged, openflow.Tagged, unseen, unseen},
		"it knows the port, and leads to others": {openflow.Tagged, openflow.Led, openflow.Tagged, unseen},
		"tunnels do not lead to any port":        {openflow.Led, openflow.Led, unseen, unseen},
		"no other port needs tunnels":            {openflow.Led, openflow.Complete, unseen, unseen},
		"tunnels lead to others only":            {openflow.Led, openflow.Reached, openflow.Led, openflow.Led},
		"the port has everything":                {openflow.Complete, openflow.Led, openflow.Complete, openflow.Complete},
		"tunnels lead to it":                     {openflow.Reached, openflow.Led, openflow.Complete, openflow.Complete},
	} {
		most := furthest(map[string]uint32{"a": 7, "b": 8}, map[uint32]openflow.Stage{7: c.at, 8: c.other, 9: openflow.Reached})
		require.Equal(t, max(c.at, c.other), most, name)
		require.Equal(t, c.node, stageOf(Port{}, c.at, most), name)
		require.Equal(t, c.pods, stageOf(Port{Container: "sandbox"}, c.at, most), name)
		require.Equal(t, c.node, stageOf(Port{Container: "sandbox", Replaced: true}, c.at, most), name)
	}
	for at := openflow.Unknown; at < openflow.Complete; at++ {
		require.NotEmpty(t, lacking[at])
	}
}

// The port of another sandbox begins again, and the port of a sandbox that is gone is forgotten.
func TestPortsOfSandboxes(t *testing.T) {
	onNode(t, []Port{ofPod, other}, func(t *testing.T, n *node) {
		n.stages["a"], n.stages["other"] = openflow.Led, openflow.Reached
		n.pass(programmedWithin - lookEvery)
		n.ports[0].Container = "again"
		n.pass(time.Minute)
		require.Equal(t, []string{"a 55"}, n.replaced)
		require.Len(t, n.unprogrammed, 2)
	})
}

// A switch that does not answer the question for flows does not hold up the node's other work.
func TestPortsOfHungSwitch(t *testing.T) {
	onNode(t, []Port{ofNode}, func(t *testing.T, n *node) {
		n.cfg.Programmed = func(ctx context.Context, _ openflow.Addresses) (map[uint32]openflow.Stage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := n.Ports.Replace(t.Context(), n.ports)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, flowsTimeout, time.Since(n.begun))
		require.Equal(t, lookEvery, n.Next())
	})
}

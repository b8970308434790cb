// Package packets sends streams of packets between pods and hosts of a lab while its network changes, and says which packets are lost, which
// arrive although they are denied, and how long none arrives. It knows of the network only the addresses and namespaces that it is given.
package packets

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// patience is how long answers may take after the change of the network.
const patience = 2 * time.Minute

// Streams are streams of packets, one each way. A packet is sent each 20 ms. Some packets are as large as the MTU, and none is fragmented.
// Some begin a connection.
type Streams struct {
	Lab  *ovnhost.Lab
	Ways []Way
	MTU  int
	// Hosts are the hosts whose switches the packets go through. Keep excuses as many packets as their kernels have dropped before the
	// switches have read them: the userspace datapath of Open vSwitch needs a processor in time.
	Hosts []string
	// Excused is how many packets more Keep excuses, of all ways together; MaxLost while ovn-controller replaces all flows of switches.
	Excused int
}

// Keep sends packets while do runs, and gets an answer to each. It returns an error if a packet or its answer is lost, or if a packet arrives
// on a way that is denied. A late answer is an answer: a busy machine delays packets. The text says how many packets there were. With TCP
// each packet is one write, and its answer is another. The text also says how many packets TCP has sent again: those are lost, or late.
func (s Streams) Keep(ctx context.Context, do func()) (text string, err error) {
	before, err := Unread(ctx, s.Lab, s.Hosts)
	if err != nil {
		return "", err
	}
	err = s.during(ctx, func() error { do(); return nil }, func(answered context.Context, flows []*flow) error {
		var all tally
		for _, f := range flows {
			all.add(answered, f)
		}
		after, err := Unread(ctx, s.Lab, s.Hosts)
		if err != nil {
			return err
		}
		text, err = all.judge(after-before, s.Excused)
		return err
	})
	return text, err
}

// LongestGap sends packets as Keep does while do runs, and returns the longest time without an answer of all ways.
func (s Streams) LongestGap(ctx context.Context, do func() error) (longest time.Duration, err error) {
	err = s.during(ctx, do, func(ctx context.Context, flows []*flow) error {
		for _, f := range flows {
			if _, err := f.answers(ctx); err != nil {
				return err
			}
			longest = max(longest, f.longestGap())
		}
		return nil
	})
	return longest, err
}

// during sends packets while do runs, and until read has returned. The packets that were sent while do ran are marked for read.
func (s Streams) during(ctx context.Context, do func() error, read func(context.Context, []*flow) error) (err error) {
	flows, err := s.start()
	defer func() { err = errors.Join(err, closeAll(flows)) }()
	if err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := markAll(ctx, flows); err != nil {
		return err
	}
	return read(ctx, flows)
}

// start returns the flows that have started, also with an error.
func (s Streams) start() (flows []*flow, err error) {
	for _, w := range s.Ways {
		f, err := startFlow(s.Lab, w, s.MTU)
		if err != nil {
			return flows, fmt.Errorf("send packets %s: %w", w, err)
		}
		flows = append(flows, f)
	}
	return flows, nil
}

// markAll marks the packets that each flow has sent, when each has sent at least flowRound.
func markAll(ctx context.Context, flows []*flow) error {
	return ovnhost.Poll(ctx, func(context.Context) error {
		for _, f := range flows {
			if f.marked, _ = f.arrivals(); f.marked < flowRound {
				return fmt.Errorf("%d packets are sent %s", f.marked, f.Way)
			}
		}
		return nil
	})
}

func closeAll(flows []*flow) (err error) {
	for _, f := range flows {
		err = errors.Join(err, f.close())
	}
	return err
}

package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Way is the way of packets from one pod or host to another one, or to itself.
type Way struct {
	From, To string
	Address  netip.Addr // of To
	// Service is the address of a service that leads to To, and its port, which is 0 if it is Port. Packets are sent to it. Zero for Address.
	Service netip.AddrPort
	// Port is different for ways to the same pod by the same protocol. Zero for a default.
	Port uint16
	// TCP is set for packets of TCP, which sends lost ones again. Without it they are of UDP.
	TCP bool
	// Denied is a way on which no packet may arrive. It is not of TCP.
	Denied bool
}

// sentTo returns where packets are sent.
func (w Way) sentTo() netip.AddrPort {
	switch {
	case !w.Service.Addr().IsValid():
		return netip.AddrPortFrom(w.Address, w.Port)
	case w.Service.Port() == 0:
		return netip.AddrPortFrom(w.Service.Addr(), w.Port)
	default:
		return w.Service
	}
}

// network returns the network of package net.
func (w Way) network() string {
	name := "udp"
	if w.TCP {
		name = "tcp"
	}
	if w.Address.Is6() {
		return name + "6"
	}
	return name + "4"
}

func (w Way) String() string {
	text := fmt.Sprintf("from %s to %s", w.From, w.To)
	if w.Service.Addr().IsValid() {
		text += " by " + w.sentTo().String()
	}
	return fmt.Sprintf("%s port %d of %s", text, w.Port, w.network())
}

// KeepsPackets sends packets all ways while do runs, and gets an answer to each. Some packets are as large as the MTU, and none is
// fragmented. It returns an error if a packet or its answer is lost. A late answer is an answer: a busy machine delays packets. It excuses as
// many packets as the kernel has dropped before the switches of the hosts have read them: the userspace datapath of Open vSwitch needs a processor in time. It is also an
// error if a packet arrives on a way that is denied. The text says how many packets there were. With TCP each packet is one write,
// and its answer is another. The text also says how many packets TCP has sent again: those are lost, or late.
func (l *Lab) KeepsPackets(ctx context.Context, hosts []string, mtu int, ways []Way, do func()) (text string, err error) {
	return l.keepsPackets(ctx, hosts, mtu, ways, 0, do)
}

// KeepsMostPackets is KeepsPackets while ovn-controller replaces all flows of switches. It excuses MaxLost packets more, of all ways together.
func (l *Lab) KeepsMostPackets(ctx context.Context, hosts []string, mtu int, ways []Way, do func()) (text string, err error) {
	return l.keepsPackets(ctx, hosts, mtu, ways, MaxLost, do)
}

func (l *Lab) keepsPackets(ctx context.Context, hosts []string, mtu int, ways []Way, excused int, do func()) (text string, err error) {
	before, err := l.Unread(ctx, hosts)
	if err != nil {
		return "", err
	}
	flows, err := l.startFlows(mtu, ways)
	defer func() { err = errors.Join(err, closeFlows(flows)) }()
	if err != nil {
		return "", err
	}
	do()
	answered, cancel := context.WithTimeout(ctx, flowPatience)
	defer cancel()
	if err := markFlows(answered, flows); err != nil {
		return "", err
	}
	var all tally
	for _, f := range flows {
		all.add(answered, f)
	}
	after, err := l.Unread(ctx, hosts)
	if err != nil {
		return "", err
	}
	return all.judge(after-before, excused)
}

// tally adds up flows.
type tally struct {
	sent, lost      int
	denied, arrived int
	viaTCP          int      // of sent
	again, againNew int      // packets that TCP has sent again, on connections that last and on new ones
	silent          int      // ways on which no further answers come
	wrong           []string // what is lost, and what arrived, on each way
}

// add adds a flow, when answers of all its packets until now have come or do not come.
func (t *tally) add(ctx context.Context, f *flow) {
	if f.Denied {
		sent, arrived := f.arrivals()
		if t.denied += sent; arrived > 0 {
			t.arrived += arrived
			t.wrong = append(t.wrong, fmt.Sprintf("%s: %d of %d arrived", f.Way, arrived, sent))
		}
		return
	}
	without, err := f.answers(ctx)
	if f.TCP {
		again, againNew := f.sentAgain()
		t.viaTCP, t.again, t.againNew = t.viaTCP+f.marked, t.again+again, t.againNew+againNew
	}
	if t.sent += f.marked; len(without) > 0 {
		t.lost += len(without)
		t.wrong = append(t.wrong, fmt.Sprintf("%s: %d of %d are lost, %v", f.Way, len(without), f.marked, without))
	}
	if err != nil {
		t.silent++
		t.wrong = append(t.wrong, err.Error())
	}
}

// judge returns the figures. It is an error if more packets are lost than the switches have not read and than are excused, or if a denied one has
// arrived.
func (t *tally) judge(unread, excused int) (text string, err error) {
	text = fmt.Sprintf("%d packets, of which %d are lost; switches have not read %d", t.sent, t.lost, unread)
	if t.viaTCP > 0 {
		text += fmt.Sprintf("; %d are of TCP, which has sent %d again, and %d more on new connections", t.viaTCP, t.again, t.againNew)
	}
	if t.denied > 0 {
		text += fmt.Sprintf("; %d packets that are denied, of which %d arrived", t.denied, t.arrived)
	}
	if t.lost > unread+excused || t.silent > 0 || t.arrived > 0 {
		return "", fmt.Errorf("packets are lost, or arrive where they are denied: %s: %s", text, strings.Join(t.wrong, "; "))
	}
	return text, nil
}

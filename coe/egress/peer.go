package egress

import (
	"net/netip"
	"time"
)

// peer is what is known of a node that may hold addresses.
type peer struct {
	asked    time.Time // the first time; zero if it was not asked yet
	heard    time.Time // when its kernel answered last, with or without its agent
	misses   int       // questions since then without an answer of the kernel
	answered time.Time // when its agent answered last
	version  string    // of the part that is in force, according to the last answer
	// applied is the version of a part that is in force, except for the ports in missing.
	applied string
	missing []string
	// received are the counts of packets by the name of a port: nil until the agent has answered a question for them, and empty if
	// it does not count.
	received map[string]count
	hangs    bool // the kernel has accepted the last connection that it has answered, and the agent has not
	// unfit are the addresses for which the node has no NIC, and slow those that it has not prepared in time, with the time
	// at which that was found out.
	unfit, slow map[netip.Addr]time.Time
}

// count is a number of packets that did not change between two times.
type count struct {
	packets  uint64
	from, to time.Time
}

// dead reports whether a node has been silent. A node is not dead while its kernel answers: without its agent it
// translates as before, and keeps the address. One question without an answer is not enough, because the bridge itself
// may have been halted.
func (p *peer) dead(now time.Time) bool {
	return p != nil && p.misses > 1 && now.Sub(p.asked) >= deadAfter && now.Sub(p.heard) >= deadAfter
}

// answers reports whether the agent of a node answers.
func (p *peer) answers(now time.Time) bool {
	return p != nil && !p.answered.IsZero() && now.Sub(p.answered) < deadAfter
}

// counts returns the counts after an answer to a question that was asked at a time. The node has counted between the two: a
// new count is as young as the answer, and one that is the same is as old as the question.
func (p *peer) counts(asked, now time.Time, received map[string]uint64) map[string]count {
	all := map[string]count{}
	for port, packets := range received {
		c, found := p.received[port]
		if found && c.packets == packets {
			c.to = asked
		} else {
			c = count{packets, now, now}
		}
		all[port] = c
	}
	return all
}

// quiet reports whether no packet has come in by a port for a time, as far as the agent of the node counts.
func (p *peer) quiet(now time.Time, port string, long time.Duration) bool {
	if !p.answers(now) {
		return true
	}
	c, counted := p.received[port]
	return p.received != nil && (!counted || c.to.Sub(c.from) >= long)
}

// agentIsGone reports whether the agent of a node that lives has been silent for long.
func (p *peer) agentIsGone(now time.Time) bool {
	return p != nil && !p.dead(now) && now.Sub(p.asked) >= agentGone && now.Sub(p.answered) >= agentGone
}

// unknown reports whether a node has not been asked for long enough to know whether its agent answers.
func (p *peer) unknown(now time.Time) bool {
	return p == nil || p.asked.IsZero() || p.answered.IsZero() && now.Sub(p.asked) < deadAfter
}

// ready reports whether the agent of a node answers, and has a NIC for an address.
func (p *peer) ready(now time.Time, addr netip.Addr) bool {
	return p.answers(now) && !p.isUnfit(now, addr)
}

// isUnfit reports whether a node was found unfit for an address lately.
func (p *peer) isUnfit(now time.Time, addr netip.Addr) bool {
	at, found := p.unfit[addr]
	return found && now.Sub(at) < unfitFor
}

// isSlow reports whether a node has not prepared an address in time lately.
func (p *peer) isSlow(now time.Time, addr netip.Addr) bool {
	at, found := p.slow[addr]
	return found && now.Sub(at) < unfitFor
}

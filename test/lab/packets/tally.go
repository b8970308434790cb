package packets

import (
	"context"
	"fmt"
	"strings"
)

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

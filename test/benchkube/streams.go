package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/kube"
)

const (
	streamPath      = "/rests/streams/node-interfaces="
	snapshotTimeout = 30 * time.Second
	// lineLimit bounds an event.
	lineLimit = 1 << 20
)

// streams follows the streams of all nodes, as their agents do, and notes when each
// pod's record comes.
type streams struct {
	*moments
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// notification is what is read of an event.
type notification struct {
	Body struct {
		Changed *struct {
			Operation string `json:"operation"`
			Namespace string `json:"namespace"`
			Pod       string `json:"pod"`
		} `json:"coe-agent:interface-changed"`
		Complete *struct{} `json:"coe-agent:snapshot-complete"`
	} `json:"ietf-restconf:notification"`
}

// follow follows the streams, and returns when each has told what there is.
func (b *bridge) follow(ctx context.Context) (*streams, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &streams{moments: newMoments("stream events"), cancel: cancel}
	told := make(chan struct{}, nodes)
	for n := range nodes {
		answer, err := b.get(ctx, streamPath+kube.NodeAddress(n).String())
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("follow the stream of %s: %w", kube.Node(n), err)
		}
		s.done.Go(func() { s.read(answer, func() { told <- struct{}{} }) })
	}
	timeout := time.NewTimer(snapshotTimeout)
	defer timeout.Stop()
	for range nodes {
		select {
		case <-told:
		case <-timeout.C:
			s.stop()
			return nil, fmt.Errorf("follow streams: one has not told what there is after %s", snapshotTimeout)
		}
	}
	return s, nil
}

func (s *streams) read(answer *http.Response, complete func()) {
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, lineLimit)
	for first := true; lines.Scan(); {
		data, found := strings.CutPrefix(lines.Text(), "data: ")
		var n notification
		if !found || json.Unmarshal([]byte(data), &n) != nil {
			continue
		}
		if c := n.Body.Changed; c != nil && c.Operation == "put" {
			s.note(key(c.Namespace, c.Pod))
		}
		if n.Body.Complete != nil && first {
			first = false
			complete()
		}
	}
}

func (s *streams) stop() {
	s.cancel()
	s.done.Wait()
}

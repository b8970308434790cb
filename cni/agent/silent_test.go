package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// silence is how long a question waits for an answer that must not come.
const silence = time.Second

// question is a client that asks both ports at a node.
type question struct {
	from, node string
	at         nodePorts
}

// silent waits until neither port answers a client.
func (w *exposeWorld) silent(from, node string, at nodePorts) {
	w.t.Helper()
	w.allSilent(question{from, node, at})
}

// allSilent waits until no port answers its client. All are asked at the same time.
func (w *exposeWorld) allSilent(questions ...question) {
	w.t.Helper()
	await(w.t, fmt.Sprint("no answer to ", questions), func() error {
		errs := make([]error, 2*len(questions))
		var asked sync.WaitGroup
		for i, q := range questions {
			asked.Go(func() { errs[2*i] = w.noAnswerTCP(q.from, q.node, q.at.tcp) })
			asked.Go(func() { errs[2*i+1] = w.noAnswerUDP(q.from, q.node, q.at.udp) })
		}
		asked.Wait()
		return errors.Join(errs...)
	})
}

// silentTCP waits until a port does not answer.
func (w *exposeWorld) silentTCP(from, node string, port int) {
	w.t.Helper()
	await(w.t, node+" does not answer over TCP", func() error { return w.noAnswerTCP(from, node, port) })
}

// noAnswerTCP fails unless a connection has no answer.
func (w *exposeWorld) noAnswerTCP(from, node string, port int) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), silence)
	defer cancel()
	conn, err := w.lab.Dial(ctx, from, "tcp", net.JoinHostPort(node, strconv.Itoa(port)))
	if err == nil {
		return errors.Join(fmt.Errorf("port %d at %s answers %s", port, node, from), conn.Close())
	}
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return err
	}
	return nil
}

// noAnswerUDP fails unless a datagram has no answer.
func (w *exposeWorld) noAnswerUDP(from, node string, port int) error {
	switch answer, err := w.askUDP(silence, from, node, port); {
	case err == nil:
		return fmt.Errorf("UDP port %d at %s answers %s: %s", port, node, from, answer)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return nil
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

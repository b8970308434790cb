package odlpods

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Pings is a pod that pings an address ten times a second.
type Pings struct {
	log     string
	begun   time.Time
	process *ovnhost.Process
}

// Answers are the results of Pings.
type Answers struct {
	Sent, Lost int
	Gap        time.Duration // the longest time between two answers, until the first one, or since the last one
}

const pingEvery = 100 * time.Millisecond

// StartPings starts to ping an address from a pod. name is that of the log.
func (l *Lab) StartPings(ctx context.Context, name string, from Pod, to netip.Addr) (*Pings, error) {
	begun := time.Now()
	process, err := l.Launch(ctx, ovnhost.Command{
		Name: name, Pod: from.String(), Argv: []string{"ping", "-n", "-D", "-i", fmt.Sprint(pingEvery.Seconds()), to.String()},
	})
	return &Pings{filepath.Join(l.Logs(), name+".log"), begun, process}, err
}

// answered matches a line of ping about an answer.
var answered = regexp.MustCompile(`^\[(\d+\.\d+)\] .*icmp_seq=(\d+) ttl`)

// inSeconds returns a time as ping prints it.
func inSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// End ends the pings. It fails if none was answered.
func (p *Pings) End() (Answers, error) {
	ended := time.Now()
	if err := p.process.Terminate(); err != nil {
		return Answers{}, err
	}
	return p.answers(ended)
}

// answers reads the results at the end from the log.
func (p *Pings) answers(ended time.Time) (a Answers, err error) {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return a, fmt.Errorf("read what ping has printed: %w", err)
	}
	got, before := 0, inSeconds(p.begun)
	for line := range strings.Lines(string(text)) {
		fields := answered.FindStringSubmatch(line)
		if fields == nil {
			continue
		}
		at, bad := strconv.ParseFloat(fields[1], 64)
		number, worse := strconv.Atoi(fields[2])
		if err := errors.Join(bad, worse); err != nil {
			return a, fmt.Errorf("read %q: %w", line, err)
		}
		got++
		a.Gap = max(a.Gap, time.Duration((at-before)*float64(time.Second)))
		a.Sent, before = number, at
	}
	if got == 0 {
		return a, errors.New("no ping was answered")
	}
	silent := time.Duration((inSeconds(ended) - before) * float64(time.Second)) // at the end
	if a.Gap = max(a.Gap, silent); silent > 5*pingEvery {
		a.Sent += int(silent / pingEvery)
	}
	a.Lost = a.Sent - got
	return a, nil
}

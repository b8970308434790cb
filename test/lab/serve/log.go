package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Log is the log of a bridge, in JSON.
type Log struct {
	seen   io.Writer   // gets warnings and errors; nil for none
	served chan string // the URL, once

	mu    sync.Mutex
	part  []byte // the start of an incomplete line
	lines []line
}

// line is a line of the log.
type line struct {
	Time       time.Time
	Level, Msg string
	URL        string
	Resource   string
	text       string
}

func newLog(seen io.Writer) *Log { return &Log{seen: seen, served: make(chan string, 1)} }

// Write implements io.Writer.
func (l *Log) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, text...)
	for {
		one, rest, complete := bytes.Cut(l.part, []byte("\n"))
		if !complete {
			return len(text), nil
		}
		l.add(one)
		l.part = rest
	}
}

// add adds a line, writes it to seen if it is a warning or an error, and finds the URL of the bridge.
func (l *Log) add(text []byte) {
	one := line{text: string(text)}
	if err := json.Unmarshal(text, &one); (err != nil || one.Level != "INFO") && l.seen != nil {
		_, _ = fmt.Fprintln(l.seen, one.text)
	}
	l.lines = append(l.lines, one)
	if one.Msg == "serving" {
		l.served <- one.URL
	}
}

// Len returns the number of lines.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Says reports whether a line has all these texts. since is the number of the first line to check.
func (l *Log) Says(since int, texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines[since:], func(one line) bool {
		return !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(one.text, t) })
	})
}

// Count returns the number of lines with all these texts.
func (l *Log) Count(texts ...string) (n int) {
	for i := range l.Len() {
		if l.has(i, texts) {
			n++
		}
	}
	return n
}

// has reports whether line n has all these texts.
func (l *Log) has(n int, texts []string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(l.lines[n].text, t) })
}

// Last returns the last lines.
func (l *Log) Last() string {
	const last = 40
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for _, one := range l.lines[max(0, len(l.lines)-last):] {
		fmt.Fprintln(&b, one.text)
	}
	return b.String() + string(l.part)
}

// first returns the time of the first line that meets a condition.
func (l *Log) first(meant func(line) bool) (at time.Time, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.lines, meant)
	if i < 0 {
		return time.Time{}, false
	}
	return l.lines[i].Time, true
}

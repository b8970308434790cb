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

// Log is what a bridge has logged, as JSON.
type Log struct {
	seen   io.Writer   // for what a person must see; nil for nobody
	served chan string // the URL, once

	mu    sync.Mutex
	part  []byte // of a line that is not complete yet
	lines []line
}

// line is what was logged once.
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

// add keeps a line, shows it to a person unless it is for information, and tells
// where the bridge serves.
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

// Len is how many lines there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Says reports whether a line from number since on has all these texts.
func (l *Log) Says(since int, texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines[since:], func(one line) bool {
		return !slices.ContainsFunc(texts, func(t string) bool { return !strings.Contains(one.text, t) })
	})
}

// Count is how many lines have all these texts.
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

// Last is the last of the lines.
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

// first is when the first line was logged that is the one meant.
func (l *Log) first(meant func(line) bool) (at time.Time, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.lines, meant)
	if i < 0 {
		return time.Time{}, false
	}
	return l.lines[i].Time, true
}

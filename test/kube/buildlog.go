package kube

import (
	"bytes"
	"strings"
	"sync"
)

// buildLog keeps what go build says: the packages that it comes to, what it
// downloads, and at last what is wrong.
type buildLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// current is the last line as the end of a sentence, or empty: go test -c says nothing
// of what it builds.
func (l *buildLog) current() string {
	lines := l.lines()
	if last := lines[len(lines)-1]; last != "" {
		return ", now " + last
	}
	return ""
}

// last is the end, for an error.
func (l *buildLog) last() string {
	const lines = 20
	all := l.lines()
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func (l *buildLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

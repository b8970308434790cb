package kube

import (
	"bytes"
	"strings"
	"sync"
)

// buildLog keeps the output of go build: packages, downloads, and errors.
type buildLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *buildLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// current returns the last line for a progress report, or an empty text: go test -c prints no packages.
func (l *buildLog) current() string {
	lines := l.lines()
	if last := lines[len(lines)-1]; last != "" {
		return ", now " + last
	}
	return ""
}

// last returns the end of the output for an error.
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

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// screen is where the story is told: a line per step with the time since the
// start, and what there is to say below it.
type screen struct {
	out    io.Writer
	start  time.Time
	colour bool
}

// noColour is the environment variable by which a user wants none.
const noColour = "NO_COLOR"

func newScreen(out *os.File) *screen {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &screen{out: out, start: time.Now(), colour: err == nil && os.Getenv(noColour) == ""}
}

// step begins a step.
func (s *screen) step(title string) {
	at := fmt.Sprintf("[%5.1fs]", time.Since(s.start).Seconds())
	s.print(at + " " + s.bold(title))
}

// say tells something of the current step; text may have several lines.
func (s *screen) say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		s.print("         " + strings.TrimRight(line, "\n"))
	}
}

// print writes a line. There is nobody to tell that the terminal is gone.
func (s *screen) print(line string) { _, _ = fmt.Fprintln(s.out, line) }

func (s *screen) bold(text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

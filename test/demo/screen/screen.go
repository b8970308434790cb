// Package screen is where demonstrations tell their story.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Screen prints the story: a line per step with the time since the start, and the
// details below it.
type Screen struct {
	out    io.Writer
	start  time.Time
	colour bool
}

// noColour is the environment variable by which a user wants none.
const noColour = "NO_COLOR"

// New returns a Screen that tells it to a terminal, or a file.
func New(out *os.File) *Screen {
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return &Screen{out: out, start: time.Now(), colour: err == nil && os.Getenv(noColour) == ""}
}

// Step begins a step.
func (s *Screen) Step(title string) {
	at := fmt.Sprintf("[%5.1fs]", time.Since(s.start).Seconds())
	s.print(at + " " + s.bold(title))
}

// Say tells something of the current step; text may have several lines.
func (s *Screen) Say(format string, args ...any) {
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		s.print("         " + strings.TrimRight(line, "\n"))
	}
}

// print writes a line. There is nobody to tell that the terminal is gone.
func (s *Screen) print(line string) { _, _ = fmt.Fprintln(s.out, line) }

func (s *Screen) bold(text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[1m" + text + "\x1b[0m"
}

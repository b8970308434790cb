package yang

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is yanglint's result for a document: the document in its output form, or the error.
type answer struct {
	text []byte
	err  error
}

// linter validates documents of the schema's modules with yanglint, thousands in one process:
// it writes commands to yanglint's interactive mode.
type linter struct {
	program string
	modules []string
	dir     string
}

func newLinter(t testing.TB, s *Schema) *linter {
	t.Helper()
	l := &linter{program: yanglint(t), dir: inMemory(t)}
	l.modules = []string{"testdata/sample.yang"}
	for _, m := range s.Modules {
		if m.Implemented && m.Name != "sample" {
			l.modules = append(l.modules, m.Name+".yang")
		}
	}
	// Else yanglint creates one in the user's home.
	require.NoError(t, os.Mkdir(filepath.Join(l.dir, ".yanglint"), 0o700))
	return l
}

// inMemory returns a folder in memory.
func inMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "yanglint")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// judge validates all documents in one format, and converts the valid ones to the other. Two
// processes share the work.
func (l *linter) judge(t testing.TB, documents [][]byte, from, to string) []answer {
	t.Helper()
	for i, document := range documents {
		require.NoError(t, os.WriteFile(l.file(i, "in."+from), document, 0o600))
	}
	answers := make([]answer, len(documents))
	var workers sync.WaitGroup
	half := (len(documents) + 1) / 2
	for _, part := range [][2]int{{0, half}, {half, len(documents)}} {
		workers.Go(func() {
			for next := part[0]; next < part[1]; {
				next = l.session(t.Context(), answers, next, part[1], from, to)
			}
		})
	}
	workers.Wait()
	return answers
}

func (l *linter) file(i int, name string) string {
	return filepath.Join(l.dir, strconv.Itoa(i)+"."+name)
}

// asked is yanglint's output for the command after each document.
var asked = regexp.MustCompile(`(?m)^YANGLINT\[E\]: Unknown command "asked-(\d+)".*\n`)

// session validates documents from first to end in one process. It returns the next document
// to validate: if yanglint crashes, the session ends early.
func (l *linter) session(ctx context.Context, answers []answer, first, end int, from, to string) int {
	var said bytes.Buffer
	commands := bytes.NewBufferString("searchpath .\n")
	for _, module := range l.modules {
		fmt.Fprintf(commands, "add %s\n", module)
	}
	for i := first; i < end; i++ {
		fmt.Fprintf(commands, "data -e -t data -f %s -o %s %s\nasked-%d\n", to, l.file(i, "out"), l.file(i, "in."+from), i)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, l.program)
	cmd.Env = append(os.Environ(), "HOME="+l.dir)
	cmd.Stdin, cmd.Stderr = commands, &said
	crash := cmd.Run()

	text := said.Bytes()
	for _, at := range asked.FindAllSubmatchIndex(text, -1) {
		answers[first] = l.answer(first, string(said.Next(at[0]-len(text)+said.Len())))
		said.Next(at[1] - at[0])
		first++
	}
	if first < end {
		answers[first].err = fmt.Errorf("yanglint crashed: %w: %s", crash, said.Bytes())
		first++
	}
	return first
}

// answer returns the result for a document from yanglint's output.
func (l *linter) answer(i int, said string) answer {
	if strings.Contains(said, "YANGLINT[E]") {
		return answer{err: fmt.Errorf("%s", said)}
	}
	text, err := os.ReadFile(l.file(i, "out"))
	return answer{text, err}
}

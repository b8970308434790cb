package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the project's folder.
const root = "../.."

// document is a Markdown file.
type document struct {
	path string
	text []byte
}

// snippet is a block of commands that the test runs, and what it prints.
type snippet struct {
	code    string
	printed func() string // nil if the document does not show it
	write   func(printed string)
}

func documents(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found)
		paths = append(paths, found...)
	}
	return paths
}

func read(t *testing.T, path string) *document {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return &document{path, text}
}

var runs = regexp.MustCompile("(?ms)^```sh run\n(.*?)^```\n(\n```json\n(.*?)^```\n)?")

// snippets returns the blocks that the test runs. Each looks up its place in the text at
// each use, because writing the output of an earlier one moves it.
func (d *document) snippets() []snippet {
	var all []snippet
	for i, at := range runs.FindAllSubmatchIndex(d.text, -1) {
		one := snippet{code: string(d.text[at[2]:at[3]])}
		if at[6] >= 0 {
			place := func() (int, int) {
				at := runs.FindAllSubmatchIndex(d.text, -1)[i]
				return at[6], at[7]
			}
			one.printed = func() string {
				from, to := place()
				return string(d.text[from:to])
			}
			one.write = func(printed string) {
				from, to := place()
				d.text = append(append(append([]byte{}, d.text[:from]...), printed...), d.text[to:]...)
			}
		}
		all = append(all, one)
	}
	return all
}

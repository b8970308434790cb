package docs

import (
	"bytes"
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

var update = flag.Bool("update", false, "write what the snippets print into the documents")

func TestMain(m *testing.M) { os.Exit(bridgetest.Main(m)) }

// TestSnippets runs the snippets of each document as they are printed, in one folder and
// one environment, against a bridge of their own. They must print what the document shows.
func TestSnippets(t *testing.T) {
	folder := withProgram(t)
	for _, path := range documents(t) {
		doc := read(t, path)
		if len(doc.snippets()) == 0 {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			b := bridgetest.Start(t)
			sh := shell{folder: folder, state: filepath.Join(t.TempDir(), "environment"), url: b.URL()}
			for _, s := range doc.snippets() {
				sh.check(t, doc, s)
			}
			if *update {
				require.NoError(t, os.WriteFile(path, doc.text, 0o644))
			}
		})
	}
}

// withProgram returns a folder with the program at bin/coe-bridge, as after make build.
func withProgram(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil && testing.Short() {
			t.Skipf("needs %s: run without -short", tool)
		}
	}
	folder := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(folder, "bin"), 0o755))
	require.NoError(t, os.Symlink(bridgetest.Program(t), filepath.Join(folder, "bin/coe-bridge")))
	return folder
}

// shell runs snippets one after another. Each has the variables that earlier ones set.
type shell struct{ folder, state, url string }

// check runs a snippet and compares its output. JSON output may depend on an earlier
// write that takes a moment, so check repeats such a snippet.
func (s shell) check(t *testing.T, doc *document, one snippet) {
	t.Helper()
	if one.printed == nil {
		out, err := s.run(t.Context(), one.code)
		require.NoError(t, err, "%s\n%s", one.code, out)
		require.NotContains(t, out, `"error-message"`, one.code)
		return
	}
	want, out := one.printed(), ""
	matches := func() bool {
		var err error
		out, err = s.run(t.Context(), one.code)
		return err == nil && strings.TrimSpace(out) == strings.TrimSpace(want)
	}
	for end := time.Now().Add(patience.Patience); !matches() && !*update && time.Now().Before(end); {
		continue
	}
	if *update {
		one.write(strings.TrimSpace(out) + "\n")
		return
	}
	require.Equal(t, strings.TrimSpace(want), strings.TrimSpace(out), "%s: %s", doc.path, one.code)
}

func (s shell) run(ctx context.Context, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience.Patience)
	defer cancel()
	code = strings.ReplaceAll(code, "http://127.0.0.1:8181", s.url)
	script := "set -aeuo pipefail; [ ! -e " + s.state + " ] || . " + s.state + "\n" + code + "\nexport -p >" + s.state + "\n"
	bash := exec.CommandContext(ctx, "bash", "-c", script)
	bash.Dir = s.folder
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "COE_BRIDGE_") {
			bash.Env = append(bash.Env, pair)
		}
	}
	bash.Env = append(bash.Env, "COE_BRIDGE_SERVER="+s.url)
	var out bytes.Buffer
	bash.Stdout, bash.Stderr = &out, &out
	err := bash.Run()
	return out.String(), err
}

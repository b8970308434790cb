package story_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/story"
)

// interval is the time between two checks.
const interval = 20 * time.Millisecond

// TestMemory runs every story, in every way, on a bridge with the memory backend.
func TestMemory(t *testing.T) {
	tell(t, func(t *testing.T) *teller {
		return &teller{t: t, bridge: bridgetest.Start(t)}
	})
}

// TestOVN runs every story, in every way, on a bridge with a real northbound database. The stories have the rows of the layout elan.
func TestOVN(t *testing.T) {
	if testing.Short() {
		t.Skip("needs ovsdb-server; make test runs it")
	}
	tell(t, func(t *testing.T) *teller {
		nb := ovsdb.Start(t)
		elan := func(c *bridge.Config) { c.Backend.OVN.Layout = ovn.LayoutELAN }
		return &teller{t: t, bridge: bridgetest.Start(t, bridgetest.OVN(nb.Endpoint()), elan), nb: nb}
	})
}

// tell runs every story, in every way, at the same time.
func tell(t *testing.T, start func(*testing.T) *teller) {
	each(t, func(t *testing.T, s story.Story) {
		t.Parallel()
		start(t).tell(s)
	})
}

// each runs a test for every story, in every way.
func each(t *testing.T, test func(*testing.T, story.Story)) {
	files, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		s, err := story.Parse(name, text)
		require.NoError(t, err)
		for _, e := range story.Expanders() {
			t.Run(s.Name+"/"+e.Name, func(t *testing.T) { test(t, e.Expand(s)) })
		}
	}
}

// teller runs a story on a bridge.
type teller struct {
	t        *testing.T
	bridge   *bridgetest.Bridge
	nb       *ovsdb.Server // of OVN
	switches *switches     // of OpenDaylight
	// unconfirmed holds the kinds in a model that the backend does not confirm.
	unconfirmed []string
}

func (l *teller) tell(s story.Story) {
	for _, block := range s.Blocks {
		for _, step := range block {
			l.step(s, step)
		}
	}
}

func (l *teller) step(s story.Story, step story.Step) {
	l.t.Helper()
	body := s.Files[step.File]
	switch step.Verb {
	case "restart":
		l.bridge.Restart()
	case "post":
		l.change(http.MethodPost, step, body, http.StatusNoContent, http.StatusConflict)
	case "put":
		l.change(http.MethodPut, step, body, http.StatusOK, http.StatusCreated)
	case "delete":
		l.change(http.MethodDelete, step, "", http.StatusOK, http.StatusNotFound)
	case "model":
		l.check(step, body, l.model)
	case "problems":
		l.check(step, body, l.problems)
	case "healed":
		require.Eventually(l.t, func() bool {
			return l.bridge.Status().InSync && strings.Join(l.problems(), "\n") == strings.TrimSpace(body)
		}, patience.Patience, interval, step.File)
	case "rows":
		if l.nb != nil {
			l.check(step, body, l.rows)
		}
	}
}

// change sends a request. A step that was made before can have the second status.
func (l *teller) change(method string, step story.Step, body string, first, again int) {
	l.t.Helper()
	status, text := l.bridge.Do(method, "/restconf/config/"+step.Path, body)
	right := []int{first}
	if step.Again || method == http.MethodPut {
		right = append(right, again)
	}
	require.Contains(l.t, right, status, "%s %s: %s", method, step.Path, text)
}

// check checks what a bridge in sync has. OpenDaylight confirms a pod some time after it is plugged in.
func (l *teller) check(step story.Step, want string, read func() []string) {
	l.t.Helper()
	lines := slices.DeleteFunc(strings.Split(want, "\n"), func(line string) bool {
		kind, _, _ := strings.Cut(line, " ")
		return line == "" || step.Verb == "model" && slices.Contains(l.unconfirmed, kind)
	})
	slices.Sort(lines)
	l.bridge.AwaitSync(patience.Patience)
	if l.switches == nil {
		require.Equal(l.t, strings.Join(lines, "\n"), strings.Join(sorted(read()), "\n"), step.File)
		return
	}
	bridgetest.Await(l.t, interval, patience.Patience, step.File, func() error {
		l.switches.follow()
		if got := sorted(read()); !slices.Equal(lines, got) {
			return fmt.Errorf("expected:\n%s\nactual:\n%s", strings.Join(lines, "\n"), strings.Join(got, "\n"))
		}
		return nil
	})
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

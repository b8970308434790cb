package remote

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

func newStatus() *cobra.Command {
	cmd := newReader(resource{"status", "Show whether the backend is in sync, and what is wrong", readStatus, true})
	cmd.Long = `status shows whether the backend has everything that is wanted. Each scope is a namespace,
or the cluster. WANTED is the revision of the datastore that was mapped last, PROGRAMMED
the revision that the backend has. CONFIRMED counts confirmed objects of those wanted: the
backend has the object, and the network reports that it works. A scope can be in sync and
not confirmed if the backend has an object, and the network still lacks something.`
	cmd.Example = "  coe-bridge status\n  coe-bridge status -w\n  coe-bridge status -o json"
	return cmd
}

func readStatus(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var st status.Status
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{Columns: []string{"SCOPE", "STATE", "WANTED", "PROGRAMMED", "CONFIRMED", "PROBLEMS", "LAST ERROR"}}
	for _, s := range st.Scopes {
		t.Rows = append(t.Rows, []string{
			s.Name, state(s.InSync), s.Wanted, s.Programmed,
			fmt.Sprintf("%d/%d", s.Confirmed, s.Objects), strconv.Itoa(s.Problems), s.LastError,
		})
	}
	t.Title = statusTitle(&st)
	return t, st, nil
}

// reasons lists the reasons of the problems of each UID, each once. The warning NotEnforced
// is the last.
func reasons(st *status.Status) map[string][]coe.Reason {
	reasons := map[string][]coe.Reason{}
	for _, p := range st.Problems {
		if !slices.Contains(reasons[p.UID], p.Reason) {
			reasons[p.UID] = append(reasons[p.UID], p.Reason)
		}
	}
	for _, all := range reasons {
		if n := slices.Index(all, coe.NotEnforced); n >= 0 {
			copy(all[n:], all[n+1:])
			all[len(all)-1] = coe.NotEnforced
		}
	}
	return reasons
}

// backendTrouble says why a backend is not reached, and how old the answer is if a standby still
// reads a large backend; empty while it answers.
func backendTrouble(b status.Backend) string {
	switch {
	case b.Connected == nil && b.Comparing != "":
		return fmt.Sprintf("\nbackend %s is being read since %s; ask again later", b.Name, b.Comparing)
	case b.Connected == nil:
		return fmt.Sprintf("\nbackend %s has not been asked yet", b.Name)
	case !*b.Connected:
		return fmt.Sprintf("\nbackend %s has not answered since %s: %s", b.Name, b.Since, output.OneLine(b.LastError))
	case b.Comparing != "":
		return fmt.Sprintf("\nbackend %s is being read since %s; this is what it had at %s", b.Name, b.Comparing, b.Compared)
	}
	return ""
}

func filledTitle(f status.Filled) string {
	text := fmt.Sprintf("%s (filled): %s, %d of %d objects", f.Name, state(f.InSync), f.Confirmed, f.Objects)
	text += backendTrouble(f.Backend)
	for _, p := range f.Problems {
		text += fmt.Sprintf("\n%s rejects %s %s%s: %s", f.Name, p.Kind, output.OneLine(p.Name), output.OneLine(output.Prefixed(" of namespace ", p.Namespace)), output.OneLine(p.Message))
	}
	return text
}

// standbyNote says who leads; empty if this replica does. Only a leader knows why an address cannot be chosen.
func standbyNote(st *status.Status) string {
	if st.Leads {
		return ""
	}
	return "this replica is a standby and does not know all problems; " + cmp.Or(output.OneLine(st.Leader), "nobody") + " leads"
}

// statusTitle is the state of the whole in a few lines.
func statusTitle(st *status.Status) string {
	text := fmt.Sprintf("%s: %s", st.Backend.Name, state(st.InSync)) + backendTrouble(st.Backend)
	for _, f := range st.Filled {
		text += "\n" + filledTitle(f)
	}
	if note := standbyNote(st); note != "" {
		text += "\n" + note
	}
	if !st.Complete {
		text += "\nnot every source has reported all it knows: nothing is removed until then"
	}
	for _, line := range sourceTroubles(st) {
		text += "\n" + output.OneLine(line)
	}
	if st.ClaimsError != "" {
		text += "\naddresses cannot be chosen: " + output.OneLine(st.ClaimsError)
	}
	for _, line := range unconfirmed(st) {
		text += "\n" + output.OneLine(line)
	}
	for _, p := range st.Problems {
		if p.Reason == coe.CertificateExpires { // it belongs to no scope
			text += "\n" + p.Message
		}
	}
	return text
}

// unconfirmed says what the network lacks of objects that the backend has, each reason once.
func unconfirmed(st *status.Status) (lines []string) {
	count, example := map[string]int{}, map[string]string{}
	for _, s := range st.Scopes {
		for _, u := range s.Unconfirmed {
			if count[u.Reason] += u.Objects; example[u.Reason] == "" {
				example[u.Reason] = u.Example
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		if n := count[reason]; n > 1 {
			lines = append(lines, fmt.Sprintf("%d objects are not confirmed, as %s: %s", n, example[reason], reason))
		} else {
			lines = append(lines, fmt.Sprintf("%s is not confirmed: %s", example[reason], reason))
		}
	}
	return lines
}

// sourceTroubles says what keeps sources from being followed, each trouble once.
func sourceTroubles(st *status.Status) []string {
	var lines []string
	for _, s := range st.Sources {
		resources := map[string][]string{}
		var problems []string
		for _, r := range s.Resources {
			if r.Problem == "" {
				continue
			}
			if resources[r.Problem] == nil {
				problems = append(problems, r.Problem)
			}
			resources[r.Problem] = append(resources[r.Problem], r.Name)
		}
		for _, p := range problems {
			lines = append(lines, fmt.Sprintf("%s (%s): %s", s.Name, strings.Join(resources[p], ", "), p))
		}
		for _, t := range s.Troubles {
			lines = append(lines, string(s.Name)+": "+t)
		}
	}
	return lines
}

func state(inSync bool) string {
	if inSync {
		return "in sync"
	}
	return "behind"
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/coe"
)

type status struct {
	InSync      bool   `json:"in-sync"`
	Complete    bool   `json:"complete"`
	ClaimsError string `json:"claims-error,omitempty"`
	Leads       bool   `json:"leads"`
	Leader      string `json:"leader,omitempty"`
	Sources     []struct {
		Name      string `json:"name"`
		Complete  bool   `json:"complete"`
		Reachable bool   `json:"reachable"`
		Resources []struct {
			Name     string `json:"name"`
			Listed   bool   `json:"listed"`
			Watching bool   `json:"watching"`
			Since    string `json:"since,omitempty"`
			Restarts int    `json:"restarts"`
			Problem  string `json:"problem,omitempty"`
		} `json:"resource,omitempty"`
		Troubles []string `json:"trouble,omitempty"`
	} `json:"source,omitempty"`
	Backend backendStatus  `json:"backend"`
	Filled  []filledStatus `json:"filled,omitempty"`
	Scopes  []struct {
		Name      string `json:"name"`
		Wanted    string `json:"wanted-revision"`
		Reached   string `json:"reached-revision"`
		InSync    bool   `json:"in-sync"`
		LastError string `json:"last-error,omitempty"`
		Want      int    `json:"objects-wanted"`
		Confirmed int    `json:"objects-confirmed"`
		Problems  int    `json:"problems"`

		Unconfirmed []struct {
			Reason  string `json:"reason"`
			Objects int    `json:"objects"`
			Example string `json:"example"`
		} `json:"unconfirmed,omitempty"`
	} `json:"scope,omitempty"`
	Problems []struct {
		Namespace string `json:"namespace,omitempty"`
		Kind      string `json:"kind"`
		UID       string `json:"uid"`
		Name      string `json:"name,omitempty"`
		Reason    string `json:"reason"`
		Message   string `json:"message"`
	} `json:"problem,omitempty"`
}

func newStatus() *cobra.Command {
	cmd := newReader(resource{"status", "Show how far the backend is, and what is wrong", readStatus, true})
	cmd.Long = `status shows whether the backend has all that is wanted: for each scope (a namespace,
or the cluster) the datastore's revision that is wanted and the one that is
reached, the objects that are confirmed of those wanted, and the last error. What is in
sync and not confirmed is written, and the network lacks something of it.`
	cmd.Example = "  coe-bridge status\n  coe-bridge status -w\n  coe-bridge status -o json"
	return cmd
}

func readStatus(ctx context.Context, c *client) (table, any, error) {
	var st status
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	t := table{columns: []string{"SCOPE", "STATE", "WANTED", "REACHED", "OBJECTS", "PROBLEMS", "LAST ERROR"}}
	for _, s := range st.Scopes {
		t.rows = append(t.rows, []string{
			s.Name, state(s.InSync), s.Wanted, s.Reached,
			fmt.Sprintf("%d/%d", s.Confirmed, s.Want), strconv.Itoa(s.Problems), s.LastError,
		})
	}
	t.title = st.title()
	return t, st, nil
}

// reasons are those of the problems of each uid, each once. The warning NotEnforced
// is the last.
func (st status) reasons() map[string][]string {
	reasons := map[string][]string{}
	for _, p := range st.Problems {
		if !slices.Contains(reasons[p.UID], p.Reason) {
			reasons[p.UID] = append(reasons[p.UID], p.Reason)
		}
	}
	for _, all := range reasons {
		if n := slices.Index(all, string(coe.NotEnforced)); n >= 0 {
			copy(all[n:], all[n+1:])
			all[len(all)-1] = string(coe.NotEnforced)
		}
	}
	return reasons
}

// backendStatus is how a backend answers.
type backendStatus struct {
	Name      string `json:"name"`
	Connected bool   `json:"connected"`
	Since     string `json:"since,omitempty"`
	LastError string `json:"last-error,omitempty"`
}

// trouble says that it does not; it is empty while it does.
func (b backendStatus) trouble() string {
	switch {
	case b.Connected:
		return ""
	case b.Since == "":
		return fmt.Sprintf("\nbackend %s has not been asked yet", b.Name)
	}
	return fmt.Sprintf("\nbackend %s does not answer since %s: %s", b.Name, b.Since, oneLine(b.LastError))
}

// filledStatus is how far a backend is that serves nobody.
type filledStatus struct {
	backendStatus
	InSync    bool `json:"in-sync"`
	Behind    int  `json:"scopes-behind"`
	Objects   int  `json:"objects-wanted"`
	Confirmed int  `json:"objects-confirmed"`
	Problems  []struct {
		Kind      string `json:"kind"`
		Namespace string `json:"namespace,omitempty"`
		Name      string `json:"name,omitempty"`
		Message   string `json:"message"`
	} `json:"problem,omitempty"`
}

func (f filledStatus) title() string {
	text := fmt.Sprintf("%s (filled): %s, %d of %d objects", f.Name, state(f.InSync), f.Confirmed, f.Objects)
	text += f.trouble()
	for _, p := range f.Problems {
		text += fmt.Sprintf("\n%s rejects %s %s%s: %s", f.Name, p.Kind, oneLine(p.Name), oneLine(prefixed(" of namespace ", p.Namespace)), oneLine(p.Message))
	}
	return text
}

// title says the state of the whole in a few lines.
func (st status) title() string {
	text := fmt.Sprintf("%s: %s", st.Backend.Name, state(st.InSync)) + st.Backend.trouble()
	for _, f := range st.Filled {
		text += "\n" + f.title()
	}
	if !st.Leads {
		text += "\nthis replica looks on; " + cmp.Or(oneLine(st.Leader), "nobody") + " leads"
	}
	if !st.Complete {
		text += "\nnot every source has said all it knows: nothing is removed until then"
	}
	for _, line := range st.sourceTroubles() {
		text += "\n" + oneLine(line)
	}
	if st.ClaimsError != "" {
		text += "\naddresses can't be chosen: " + oneLine(st.ClaimsError)
	}
	for _, line := range st.unconfirmed() {
		text += "\n" + oneLine(line)
	}
	for _, p := range st.Problems {
		if p.Reason == string(coe.CertificateExpires) { // it is of no scope
			text += "\n" + p.Message
		}
	}
	return text
}

// unconfirmed says what the network lacks of objects that the backend has, each thing once.
func (st status) unconfirmed() (lines []string) {
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

// sourceTroubles say what keeps sources from being followed, each thing once.
func (st status) sourceTroubles() []string {
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
			lines = append(lines, s.Name+": "+t)
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

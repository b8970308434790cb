package odldiff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// clients is the number of stories that run at the same time.
const clients = 8

// oracle runs stories on both, and compares the results.
type oracle struct {
	t       *testing.T
	oxygen  *odl.Controller // nil if only the bridge runs the stories
	bridge  *bridgetest.Bridge
	stories []*story
	counts  map[string]int // of differences, by name
}

// round makes the next step of each story that has one. It reports whether there was a step, and
// returns the wrong answers.
func (o *oracle) round(next func(*story) (step, bool)) (more bool, wrong map[*story]error, err error) {
	var ports []string
	type telling struct {
		*story
		step
	}
	var requests []telling
	for _, s := range o.stories {
		st, found := next(s)
		switch {
		case !found:
		case st.port != nil:
			ports = append(append(ports, "--"), st.port...)
		default:
			requests = append(requests, telling{s, st})
		}
		more = more || found
	}
	if err := o.plug(ports); err != nil {
		return false, nil, err
	}
	wrong = map[*story]error{}
	var told sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, clients)
	for _, r := range requests {
		slots <- struct{}{}
		told.Go(func() {
			defer func() { <-slots }()
			if err := o.request(r.step); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong[r.story] = fmt.Errorf("%w\n%s", err, r.story)
			}
		})
	}
	told.Wait()
	return more, wrong, nil
}

// plug changes ports of the host as a CNI plugin would.
func (o *oracle) plug(commands []string) error {
	if len(commands) == 0 || o.oxygen == nil {
		return nil
	}
	_, err := o.oxygen.Lab.Hosts[0].VSCtl(o.t.Context(), append([]string{"--no-wait"}, commands...)...)
	return err
}

// request sends a request to both. It returns an error unless both answer with the same status.
func (o *oracle) request(st step) error {
	path := "/restconf/config/" + st.path
	ours, answer, err := o.bridge.Client().Do(o.t.Context(), st.method, path, st.body)
	if err != nil {
		return err
	}
	if ours >= http.StatusInternalServerError {
		return fmt.Errorf("%s: the bridge answers %d %s", st, ours, answer)
	}
	if o.oxygen == nil {
		return nil
	}
	theirs, said, err := o.oxygen.Request(o.t.Context(), st.method, path, st.body)
	if err == nil && theirs != ours {
		err = fmt.Errorf("%s: Oxygen answers %d %s, the bridge %d %s", st, theirs, said, ours, answer)
	}
	return err
}

// String returns all steps of a story, for people.
func (s *story) String() string {
	lines := []string{fmt.Sprintf("story %d of seed %d:", s.number, s.seed)}
	for _, st := range s.before {
		lines = append(lines, "  "+st.String())
	}
	return strings.Join(lines, "\n")
}

// compare compares all trees of both, and the trees of the bridge with the stories. It returns the
// errors of stories. If there are none, it counts the intended differences.
func (o *oracle) compare() (wrong map[*story]error, err error) {
	ours, err := read(o.t.Context(), func(ctx context.Context, path string) (int, []byte, error) {
		status, answer, err := o.bridge.Client().Do(ctx, http.MethodGet, path, nil)
		return status, []byte(answer), err
	})
	if err != nil {
		return nil, err
	}
	wrong = map[*story]error{}
	for _, s := range o.stories {
		if err := s.complete(ours); err != nil {
			wrong[s] = err
		}
	}
	if o.oxygen == nil {
		return wrong, o.strangers(ours)
	}
	theirs, err := read(o.t.Context(), func(ctx context.Context, path string) (int, []byte, error) {
		return o.oxygen.Request(ctx, http.MethodGet, path, "")
	})
	if err != nil {
		return nil, err
	}
	counts := o.differ(theirs, ours, wrong)
	if len(wrong) == 0 {
		for name, n := range counts {
			o.counts[name] += n
		}
	}
	return wrong, errors.Join(o.strangers(ours), o.strangers(theirs))
}

func read(ctx context.Context, get func(ctx context.Context, path string) (int, []byte, error)) (map[place]object, error) {
	all := map[place]object{}
	for tree := range trees {
		status, answer, err := get(ctx, "/restconf/config/"+tree)
		if err == nil {
			err = objects(all, tree, status, answer)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// complete returns nil if the bridge has exactly the objects of the story.
func (s *story) complete(ours map[place]object) error {
	want := map[place]bool{}
	for _, p := range s.mapped() {
		want[place{"elan:elan-instances", p.elanName()}] = true
		want[place{"l3vpn:vpn-instances", p.namespace}] = true
		for _, tree := range []string{"ietf-interfaces:interfaces", "elan:elan-interfaces", "l3vpn:vpn-interfaces"} {
			want[place{tree, p.interfaceName()}] = true
		}
	}
	for _, namespace := range s.namespaces {
		floating := s.floating(namespace)
		at := place{"odl-nat:floating-ip-info", namespace}
		if !maps.Equal(floating, ours[at]) {
			return fmt.Errorf("floating-ip-info should be %v, and is %v\n%s", floating, ours[at], s)
		}
		want[at] = len(floating) > 0
	}
	for p, wanted := range want {
		if wanted && ours[p] == nil {
			return fmt.Errorf("the bridge has no %v\n%s", p, s)
		}
	}
	for p := range ours {
		if slices.Contains(s.namespaces, p.namespace()) && !want[p] {
			return fmt.Errorf("the bridge has %v, which the story does not have\n%s", p, s)
		}
	}
	return nil
}

// strangers returns an error if an entry belongs to no story. Dropped stories count too.
func (o *oracle) strangers(all map[place]object) error {
	for p := range all {
		if !strings.HasPrefix(p.namespace(), namespacePrefix) {
			return fmt.Errorf("%v belongs to no story", p)
		}
	}
	return nil
}

// differ counts the intended differences. It adds the first other difference of each story to wrong.
func (o *oracle) differ(theirs, ours map[place]object, wrong map[*story]error) (counts map[string]int) {
	places := map[place]object{}
	maps.Copy(places, theirs)
	maps.Copy(places, ours)
	by := map[string]*story{}
	for _, s := range o.stories {
		for _, namespace := range s.namespaces {
			by[namespace] = s
		}
	}
	counts = map[string]int{}
	for p := range places {
		s := by[p.namespace()]
		if s == nil || wrong[s] != nil {
			continue
		}
		for _, l := range unequal(theirs[p], ours[p]) {
			l.story, l.place = s, p
			d := slices.IndexFunc(differences, func(d difference) bool { return d.allowed(l) })
			if d < 0 {
				wrong[s] = l.fault()
				break
			}
			counts[differences[d].name]++
		}
	}
	return counts
}

// unequal returns the leaves that differ between two entries.
func unequal(theirs, ours object) (all []leaf) {
	paths := object{}
	maps.Copy(paths, theirs)
	maps.Copy(paths, ours)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if a, b := theirs.leaf(path), ours.leaf(path); a != b {
			all = append(all, leaf{path: path, oxygen: a, ours: b, theirs: theirs, own: ours})
		}
	}
	return all
}

func (o object) leaf(path string) string {
	if value, found := o[path]; found {
		return value
	}
	return nothing
}

// fault describes a leaf for people, with its entries and its story.
func (l leaf) fault() error {
	return fmt.Errorf("%s %s: %s: Oxygen has %s, we have %s\nOxygen: %s\nours: %s\n%s",
		l.tree, l.entry, l.path, l.oxygen, l.ours, l.theirs, l.own, l.story)
}

func (o object) String() string {
	text, err := json.MarshalIndent(map[string]string(o), "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Package odlfake is an OpenDaylight in process, for tests: the config datastore and its
// RESTCONF in each dialect, with the statuses, bodies and quirks that real controllers were
// recorded with (restconf/testdata), as far as a client needs them that writes entries of lists
// as JSON and reads them and their containers. A test replays the recordings against it.
//
// It judges data by the modules of package yang, has no datapath, and does of Netvirt's own
// only what a writer has to bear (an elan-instance that is written gets a mac-timeout and an
// elan-tag, and takes elan-interfaces with it when it is deleted) and what the operational
// datastore tells: what Netvirt made of interfaces whose ports are plugged in.
package odlfake

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Release is what the controller is like.
type Release struct {
	Name string
	// Draft02 and RFC8040 tell which dialects it serves.
	Draft02, RFC8040 bool
	// L3VPN is the form that it has l3vpn in.
	L3VPN L3VPN
	// Renderer: it has a COE renderer of its own.
	Renderer bool
	rules    rules
}

// L3VPN is a form of l3vpn.
type L3VPN int

// The forms: Nested up to Sodium, Moved in Magnesium, Flat from Aluminium on. The last two
// are the module l3vpn-instances-interfaces.
const (
	Nested L3VPN = iota
	Moved
	Flat
)

// rules are how releases differ.
type rules struct {
	// unprefixed: names at the top have no prefix in RFC 8040, and need none.
	unprefixed bool
	// vague: in RFC 8040 whatever goes wrong is a 500.
	vague bool
	// keeps: a container stays when its last entry is deleted.
	keeps bool
	// strict: errors of RFC 8040 are JSON, and a POST has one entry.
	strict bool
}

// The releases. AsTheRFC is none that there is.
var (
	Oxygen   = Release{Name: "oxygen", Draft02: true, RFC8040: true, Renderer: true, rules: rules{unprefixed: true, vague: true, keeps: true}}
	Neon     = Release{Name: "neon", Draft02: true, RFC8040: true}
	AsTheRFC = Release{Name: "rfc", RFC8040: true, L3VPN: Flat, rules: rules{strict: true}}
)

// User and Password are who may do everything.
const (
	User     = "admin"
	Password = "admin"
)

// Controller serves RESTCONF. Its methods may be called by several goroutines.
type Controller struct {
	release Release
	schema  *yang.Schema

	mu       sync.Mutex
	tops     map[string]*top
	tag      int
	lag      int    // after how many requests Netvirt tags an elan-instance
	untagged []late // in the order of their turn
	// members are the interfaces that Netvirt thinks are in an elan-instance.
	members  map[string]map[string]bool
	writers  int // writes of RFC 8040 that are under way
	requests map[string]int
	fault    Fault
	password string
	loading  int // the status while it starts; 0 when it is ready
	// plugged are the ports of switches, and the status of each.
	plugged map[string]string
}

// Fault may deal with a request instead of the controller, and tells whether it did.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// load compiles the modules once.
var load = sync.OnceValues(yang.Load)

// New returns a controller that is ready and has no data.
func New(release Release) (*Controller, error) {
	schema, err := load()
	if err != nil {
		return nil, err
	}
	c := &Controller{release: release, schema: schema, tag: 5000, password: Password, plugged: map[string]string{}}
	c.Wipe()
	return c, nil
}

// Wipe forgets the data, and how many requests there were.
func (c *Controller) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tops, c.requests, c.untagged, c.members = map[string]*top{}, map[string]int{}, nil, map[string]map[string]bool{}
}

// Lag has Netvirt tag elan-instances some requests late: it writes all that was there then
// once more, with the tag, whether it is there still or not.
func (c *Controller) Lag(requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = requests
}

// Break has requests dealt with by a fault first; nil ends it.
func (c *Controller) Break(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Load has the controller be as one that starts: it answers everything with a status, as its
// models are not loaded; 0 ends it. With 200 it answers, but has no modules of Netvirt's.
func (c *Controller) Load(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loading = status
}

// SetPassword changes the password.
func (c *Controller) SetPassword(password string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.password = password
}

// Requests tells how many requests there were by method, since the last time.
func (c *Controller) Requests() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.requests
	c.requests = map[string]int{}
	return seen
}

// Set puts an entry there as another hand does, as the whole of it: container is
// "module:container", entry has its keys.
func (c *Controller) Set(container, list, key string, entry map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.top(container).put(list, key, maps.Clone(entry))
}

// Remove deletes an entry as another hand does.
func (c *Controller) Remove(container, list, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(container, list, key)
}

// Entry returns an entry as it is there, nil where it is not.
func (c *Controller) Entry(container, list, key string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tops[container]; t != nil {
		if i := t.find(list, key); i >= 0 {
			return maps.Clone(t.entries[i].value)
		}
	}
	return nil
}

// Keys lists the keys of a container's entries, sorted.
func (c *Controller) Keys(container string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	if t := c.tops[container]; t != nil {
		for _, e := range t.entries {
			keys = append(keys, e.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// top is a top container with data. Of its lists, each entry is one of entries.
type top struct{ entries []stored }

type stored struct {
	list, key string
	value     map[string]any
}

// top returns a container, and makes it where it is not. It needs mu.
func (c *Controller) top(name string) *top {
	if c.tops[name] == nil {
		c.tops[name] = &top{}
	}
	return c.tops[name]
}

func (t *top) find(list, key string) int {
	return slices.IndexFunc(t.entries, func(e stored) bool { return e.list == list && e.key == key })
}

func (t *top) put(list, key string, value map[string]any) (anew bool) {
	if i := t.find(list, key); i >= 0 {
		t.entries[i].value = value
		return false
	}
	t.entries = append(t.entries, stored{list, key, value})
	return true
}

// remove needs mu.
func (c *Controller) remove(container, list, key string) bool {
	t := c.tops[container]
	if t == nil {
		return false
	}
	i := t.find(list, key)
	if i < 0 {
		return false
	}
	gone := t.entries[i]
	defer c.follow(container, gone)
	if t.entries = slices.Delete(t.entries, i, i+1); len(t.entries) == 0 && !c.release.rules.keeps {
		delete(c.tops, container)
	}
	return true
}

// content is what a GET of a container shows of it.
func (t *top) content() map[string]any {
	out := map[string]any{}
	for _, e := range t.entries {
		list, _ := out[e.list].([]any)
		out[e.list] = append(list, e.value)
	}
	return out
}

// modules lists the names of the modules that are served.
func (c *Controller) modules() []string {
	names := []string{topologyModule}
	for _, m := range c.schema.Modules {
		if !strings.HasPrefix(m.Name, "coe-") && m.Name != "k8s" && m.Name != "k8s-cluster" && (m.Name != "l3vpn" || c.release.L3VPN == Nested) {
			names = append(names, m.Name)
		}
	}
	if c.release.L3VPN != Nested {
		names = append(names, movedModule)
	}
	if c.release.Renderer {
		names = append(names, "pod-meta")
	}
	return names
}

func (c *Controller) serves(module string) bool { return slices.Contains(c.modules(), module) }

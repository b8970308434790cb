// Package odlfake is an OpenDaylight controller in process, for tests. It has the config
// datastore and its RESTCONF in each dialect, with the statuses, bodies and quirks that were
// recorded from real controllers (restconf/testdata). It supports what a client needs that
// writes entries of lists as JSON and reads entries and containers. A test replays the
// recordings against it.
//
// It checks data with the modules of package yang and has no datapath. Of Netvirt it has only
// what a writer must handle: an elan-instance gets a mac-timeout and an elan-tag, and its
// deletion deletes its elan-interfaces. The operational datastore shows interfaces whose ports
// are plugged in.
package odlfake

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/yang"
)

// Release describes the behaviour of a controller.
type Release struct {
	Name string
	// Draft02 and RFC8040 report which dialects it serves.
	Draft02, RFC8040 bool
	// L3VPN is its form of l3vpn.
	L3VPN L3VPN
	// Renderer reports whether it has a COE renderer of its own.
	Renderer bool
	rules    rules
}

// L3VPN is a form of l3vpn.
type L3VPN int

// The forms: Nested up to Sodium, Moved in Magnesium, Flat since Aluminium. The last two are
// in module l3vpn-instances-interfaces.
const (
	Nested L3VPN = iota
	Moved
	Flat
)

// rules are differences between releases.
type rules struct {
	// unprefixed: names at the top level have no prefix in RFC 8040, and need none.
	unprefixed bool
	// vague: in RFC 8040 the answer to any failure is 500.
	vague bool
	// keeps: a container stays when its last entry is deleted.
	keeps bool
	// marks: a rule of an access list is deleted if it has the leaf deleted.
	marks bool
	// strict: errors of RFC 8040 are JSON, and a POST has one entry.
	strict bool
}

// The releases. AsTheRFC is not a real release; it does what RFC 8040 says.
var (
	Oxygen   = Release{Name: "oxygen", Draft02: true, RFC8040: true, Renderer: true, rules: rules{unprefixed: true, vague: true, keeps: true}}
	Neon     = Release{Name: "neon", Draft02: true, RFC8040: true, rules: rules{marks: true}}
	AsTheRFC = Release{Name: "rfc", RFC8040: true, L3VPN: Flat, rules: rules{strict: true, marks: true}}
)

// User and Password are the credentials of a user with all rights.
const (
	User     = "admin"
	Password = "admin"
)

// Controller serves RESTCONF. Several goroutines may call its methods.
type Controller struct {
	release Release
	schema  *yang.Schema

	mu       sync.Mutex
	tops     map[string]*top
	tag      int
	lag      int    // number of requests after which Netvirt tags an elan-instance
	untagged []late // in the order in which they are tagged
	// members are the interfaces that Netvirt considers members of an elan-instance.
	members  map[string]map[string]bool
	writers  int // running writes of RFC 8040
	requests map[string]int
	fault    Fault
	password string
	loading  int // the status of all answers while it starts; 0 if it is ready
	// plugged holds the ports of switches, with their status.
	plugged map[string]string
	indexes map[string]int // if-index, by interface
}

// Fault may answer a request instead of the controller. It returns whether it did.
type Fault func(w http.ResponseWriter, r *http.Request) bool

// load compiles the modules once.
var load = sync.OnceValues(yang.Load)

// New returns a controller that is ready and has no data.
func New(release Release) (*Controller, error) {
	schema, err := load()
	if err != nil {
		return nil, err
	}
	c := &Controller{release: release, schema: schema, tag: 5000, password: Password, plugged: map[string]string{}, indexes: map[string]int{}}
	c.Wipe()
	return c, nil
}

// Wipe deletes the data, and resets the count of requests.
func (c *Controller) Wipe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tops, c.requests, c.untagged, c.members = map[string]*top{}, map[string]int{}, nil, map[string]map[string]bool{}
}

// Lag makes Netvirt tag elan-instances some requests later. Netvirt then writes the whole
// entry as it was, with the tag, even if it was deleted meanwhile.
func (c *Controller) Lag(requests int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = requests
}

// Break calls a fault for each request first; nil ends it.
func (c *Controller) Break(f Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

// Load makes the controller behave as while it starts: it answers every request with a status,
// as if its models were not loaded. With 200 it answers, but lists no modules of Netvirt. 0
// ends it.
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

// Requests returns the number of requests by method since the last call.
func (c *Controller) Requests() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.requests
	c.requests = map[string]int{}
	return seen
}

// Set replaces a whole entry, like an external writer. container is "module:container", and
// entry contains its keys.
func (c *Controller) Set(container, list, key string, entry map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.top(container).put(list, key, maps.Clone(entry))
}

// Remove deletes an entry, like an external writer.
func (c *Controller) Remove(container, list, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(container, list, key)
}

// Entry returns an entry, or nil if there is none.
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

// Keys returns the keys of a container's entries, sorted.
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

// top is a top container with data. entries holds the entries of its lists.
type top struct{ entries []stored }

type stored struct {
	list, key string
	value     map[string]any
}

// top returns a container, and creates it if it does not exist. The caller holds mu.
func (c *Controller) top(name string) *top {
	if c.tops[name] == nil {
		c.tops[name] = &top{}
	}
	return c.tops[name]
}

func (t *top) find(list, key string) int {
	return slices.IndexFunc(t.entries, func(e stored) bool { return e.list == list && e.key == key })
}

func (t *top) put(list, key string, value map[string]any) (created bool) {
	if i := t.find(list, key); i >= 0 {
		t.entries[i].value = value
		return false
	}
	t.entries = append(t.entries, stored{list, key, value})
	return true
}

// remove deletes an entry. The caller holds mu.
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

// content returns the answer to a GET of a container.
func (t *top) content() map[string]any {
	out := map[string]any{}
	for _, e := range t.entries {
		list, _ := out[e.list].([]any)
		out[e.list] = append(list, e.value)
	}
	return out
}

// modules returns the names of the modules that the controller serves.
func (c *Controller) modules() []string {
	names := []string{topologyModule, "l3nexthop"}
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

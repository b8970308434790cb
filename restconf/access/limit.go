package access

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// budget is how many logins may fail: so many at once, then one each interval.
type budget struct {
	burst int
	every time.Duration
}

// The budgets. That of one user from one address is the smallest: so a guesser
// stops neither other users behind the same address nor the same user elsewhere. That of an address bounds who tries many names; that
// of a user bounds who comes from many addresses.
var (
	pairBudget    = budget{10, 10 * time.Second}
	addressBudget = budget{30, 2 * time.Second}
	userBudget    = budget{50, 2 * time.Second}
)

// kinBudget is the budget of tokens that look like renewals of good ones, and
// reserveBudget that of other tokens from an address whose agent was let in before. Both
// are for one address. They bound what is asked of the API server, at a rate above that
// at which agents ask.
var (
	kinBudget     = budget{30, 500 * time.Millisecond}
	reserveBudget = budget{60, 200 * time.Millisecond}
)

// maxTracked bounds the memory: of each table twice as many entries are kept.
const maxTracked = 4096

// failures counts failed logins. The two wide budgets are not for those who have
// logged in from that address before: nobody locks them out.
type failures struct {
	seed maphash.Seed
	// ofAddress is the budget of an address.
	ofAddress budget

	mu                  sync.Mutex
	pairs, addrs, users recent[uint64, time.Time]
	succeededFrom       recent[uint64, struct{}]
}

func newFailures(ofAddress budget) *failures {
	return &failures{seed: maphash.MakeSeed(), ofAddress: ofAddress}
}

// key stands for who failed; names of any length are not kept.
type key struct {
	from netip.Prefix
	name string
}

func (f *failures) sum(from netip.Prefix, name string) uint64 {
	return maphash.Comparable(f.seed, key{from, name})
}

// wait is how long a login has to wait; 0 for none.
func (f *failures) wait(from netip.Prefix, name string, now time.Time) time.Duration {
	pair := f.sum(from, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	after := pairBudget.wait(f.pairs.get(pair), now)
	if _, before := f.succeededFrom.find(pair); before {
		return after
	}
	return max(after,
		f.ofAddress.wait(f.addrs.get(f.sum(from, "")), now),
		userBudget.wait(f.users.get(f.sum(netip.Prefix{}, name)), now))
}

// failed counts a login that failed.
func (f *failures) failed(from netip.Prefix, name string, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pairBudget.spend(&f.pairs, f.sum(from, name), now)
	f.ofAddress.spend(&f.addrs, f.sum(from, ""), now)
	userBudget.spend(&f.users, f.sum(netip.Prefix{}, name), now)
}

// hasSucceeded reports whether somebody came from there before.
func (f *failures) hasSucceeded(from netip.Prefix, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, before := f.succeededFrom.find(f.sum(from, name))
	return before
}

// succeeded remembers from where somebody came.
func (f *failures) succeeded(from netip.Prefix, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.succeededFrom.put(f.sum(from, name), struct{}{})
}

// wait is how long to wait for a budget that is whole again at whole.
func (b budget) wait(whole, now time.Time) time.Duration {
	missing := max(0, whole.Sub(now)) // of a whole budget
	return max(0, missing-time.Duration(b.burst-1)*b.every)
}

// spend takes one from the budget of a key.
func (b budget) spend(from *recent[uint64, time.Time], key uint64, now time.Time) {
	whole := from.get(key)
	if whole.Before(now) {
		whole = now
	}
	from.put(key, whole.Add(b.every))
}

// recent keeps what was touched last: maxTracked entries surely, and at most twice
// as many.
type recent[K comparable, V any] struct{ young, old map[K]V }

func (r *recent[K, V]) get(key K) V {
	v, _ := r.find(key)
	return v
}

func (r *recent[K, V]) find(key K) (V, bool) {
	if v, found := r.young[key]; found {
		return v, true
	}
	v, found := r.old[key]
	if found {
		r.put(key, v)
	}
	return v, found
}

func (r *recent[K, V]) put(key K, v V) {
	if _, found := r.young[key]; !found && len(r.young) >= maxTracked || r.young == nil {
		r.young, r.old = map[K]V{}, r.young
	}
	r.young[key] = v
}

package odl_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestRecreated: if the address or the vpn-instance of a vpn-interface changes, the entry is
// deleted, and created again when the controller has removed its operational state. No other
// entry is.
func TestRecreated(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), odlfake.Neon, without(odlfake.Neon)} {
		t.Run(release.Name, func(t *testing.T) {
			b, f := start(t, release)
			was := odltest.PodsOf("default", "kube-system")
			write(t, b, was)
			name := netvirt.InterfaceName("default", "pod-1", "", true)
			for what, change := range map[string]func(netvirt.Model){
				"address": func(m netvirt.Model) {
					for k, o := range m {
						if a, ok := o.(netvirt.Adjacency); ok && a.Interface == name {
							delete(m, k)
							a.Address = a.Address.Next()
							m.Add(a)
						}
					}
				},
				"vpn-instance": func(m netvirt.Model) {
					key := netvirt.VPNInstance{Name: netvirt.VPNName("default")}.Key()
					v := m[key].(netvirt.VPNInstance)
					v.Transit = ""
					m[key] = v
				},
			} {
				var gone, asked atomic.Int32
				f.Break(func(w http.ResponseWriter, r *http.Request) bool {
					path := r.URL.Path
					switch {
					case r.Method == http.MethodDelete && strings.Contains(path, "vpn-interface") && strings.Contains(path, name):
						gone.Add(1)
					case r.Method == http.MethodPut && strings.Contains(path, "vpn-interface"):
						assert.GreaterOrEqual(t, asked.Load(), int32(3), "%s: the write waits for it", what)
					case strings.Contains(path, "vpn-interface-op-data"):
						if asked.Add(1) < 3 {
							w.Header().Set("Content-Type", "application/json")
							_, _ = fmt.Fprintf(w, `{"vpn-interface-op-data-entry":[{"name":%q,"vpn-instance-name":"transit:100:1"}]}`, name)
							return true
						}
					}
					return false
				})
				now := odltest.PodsOf("default", "kube-system")
				change(now)
				write(t, b, now)
				require.NotZero(t, gone.Load(), what)
				have, err := b.Read(t.Context())
				require.NoError(t, err)
				require.Empty(t, netvirt.Diff(have, now), what)
				f.Break(nil)
				write(t, b, was)
			}
		})
	}
}

// TestDeleted: the interface of a deleted pod is deleted after the controller has removed the
// operational state of the entries that need it, or after the wait.
func TestDeleted(t *testing.T) {
	b, f := start(t, odlfake.Neon)
	write(t, b, odltest.PodsOf("a", "b"))
	const name = "b:pod-1"
	var asked atomic.Int32
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "ietf-interfaces"):
			assert.GreaterOrEqual(t, asked.Load(), int32(3))
		case strings.Contains(r.URL.Path, "vpn-interface-op-data"):
			if asked.Add(1) < 3 {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"vpn-interface-op-data-entry":[{"name":%q,"vpn-instance-name":"transit:100:1"}]}`, name)
				return true
			}
		}
		return false
	})
	write(t, b, odltest.PodsOf("a"))
	require.EqualValues(t, 3, asked.Load())
}

// TestCreatedAgain: an elan-instance is created after the controller has removed the operational state of a former one of its
// name. Others that are in operation do not matter.
func TestCreatedAgain(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), odlfake.Neon, without(odlfake.Neon)} {
		t.Run(release.Name, func(t *testing.T) {
			b, f := start(t, release)
			write(t, b, odltest.PodsOf("a"))
			var asked, created atomic.Int32
			f.Break(func(w http.ResponseWriter, r *http.Request) bool {
				switch path := r.URL.Path; {
				case (r.Method == http.MethodPost || r.Method == http.MethodPut) && strings.Contains(path, "elan-instances"):
					created.Add(1)
					assert.EqualValues(t, 3, asked.Load())
				case strings.Contains(path, "elan-state"):
					if asked.Add(1) < 3 {
						w.Header().Set("Content-Type", "application/json")
						_, _ = fmt.Fprint(w, `{"elan":[{"name":"192.168.33.10:b"}]}`)
						return true
					}
				}
				return false
			})
			write(t, b, odltest.PodsOf("a", "b"))
			require.NotZero(t, created.Load())

			many := []string{"a", "b"}
			for i := range 20 {
				many = append(many, fmt.Sprint("n", i))
			}
			asked.Store(2)
			write(t, b, odltest.PodsOf(many...))
			require.EqualValues(t, 3, asked.Load(), "the whole list is read once, and the others in it do not matter")
		})
	}
}

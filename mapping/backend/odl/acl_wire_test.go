package odl_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestPortSecurityIsTurnedOff: an interface without the leaf gets false before true, because Oxygen's
// aclservice ignores an interface that gets the leaf in an update.
func TestPortSecurityIsTurnedOff(t *testing.T) {
	inEachDialect(t, func(t *testing.T, f *fake, cfg odl.Config) {
		b, want := open(t, cfg), odltest.PodsOf("web")
		want.Add(
			netvirt.ACL{Name: "web:isolated", Namespace: "web", Isolates: netvirt.Ingress},
			netvirt.InterfaceACL{Interface: "web:pod-1", Namespace: "web", SecurityGroups: "web:isolated"},
		)
		write(t, b, want)
		const container, list, key = "ietf-interfaces:interfaces", "interface", "web:pod-1"
		entry := f.Entry(container, list, key)
		for leaf := range entry {
			if strings.HasPrefix(leaf, "aclservice:") {
				delete(entry, leaf)
			}
		}
		f.Set(container, list, key, entry)
		var sent []string
		f.Break(func(_ http.ResponseWriter, r *http.Request) bool {
			if body, err := io.ReadAll(r.Body); err == nil {
				r.Body = io.NopCloser(bytes.NewReader(body))
				if r.Method == http.MethodPut {
					_, security, _ := strings.Cut(string(body), `"aclservice:port-security-enabled":`)
					sent = append(sent, security[:4])
				}
			}
			return false
		})
		write(t, b, want)
		require.Equal(t, []string{"fals", "true"}, sent)
	})
}

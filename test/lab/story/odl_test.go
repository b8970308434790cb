package story_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/story"
)

// TestOpenDaylight runs every story, in every way, on a bridge with a fake OpenDaylight of each release.
func TestOpenDaylight(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, odlfake.Neon, odlfake.AsTheRFC} {
		t.Run(release.Name, func(t *testing.T) {
			tell(t, func(t *testing.T) *teller {
				fake, err := odlfake.New(release)
				require.NoError(t, err)
				server := httptest.NewServer(fake)
				t.Cleanup(server.Close)
				l := onOpenDaylight(t, server.URL, odlfake.User+":"+odlfake.Password)
				l.switches.plug = func(r record) { fake.Plug(r.Port) }
				l.switches.unplug = func(r record) { fake.Unplug(r.Port) }
				return l
			})
		})
	}
}

// TestRealOpenDaylight runs every story, in every way, on a bridge with a real OpenDaylight of each release. The stories of
// a release use the same controller, one after the other, and each one leaves it empty.
func TestRealOpenDaylight(t *testing.T) {
	realodl.SkipUnlessAsked(t)
	for _, release := range realodl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			c := realodl.ForTest(t, release, "host1")
			each(t, func(t *testing.T, s story.Story) {
				l := onOpenDaylight(t, c.URL, realodl.User+":"+realodl.Password)
				l.switches.plug = func(r record) { require.NoError(t, c.Lab.Plug(t.Context(), r.pod(t))) }
				l.switches.unplug = func(r record) { require.NoError(t, c.Lab.Unplug(t.Context(), r.pod(t))) }
				l.tell(s)
				l.clear()
			})
		})
	}
}

func onOpenDaylight(t *testing.T, url, password string) *teller {
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte(password), 0o600))
	b := bridgetest.Start(t, func(c *bridge.Config) {
		c.Backend = bridge.BackendConfig{Name: "odl", ODL: odl.Config{URLs: url, AuthFile: auth, Probe: time.Second, Poll: time.Second}}
	})
	return &teller{
		t: t, bridge: b, switches: &switches{t: t, bridge: b, plugged: map[string]record{}},
		unconfirmed: []string{"floating-ip", "service-vip"}, // Netvirt has no operational state of the former, and no form of the latter
	}
}

// switches plug in the pods of a bridge, as agents do. OpenDaylight confirms only pods that are plugged in.
type switches struct {
	t            *testing.T
	bridge       *bridgetest.Bridge
	plug, unplug func(record)
	plugged      map[string]record
}

// follow plugs in the interfaces that agents get, and unplugs the others.
func (s *switches) follow() {
	s.t.Helper()
	var got struct {
		Interfaces []record `json:"interface"`
	}
	s.bridge.Get("operational/coe-agent:interfaces", &got)
	wanted := map[string]record{}
	for _, r := range got.Interfaces {
		wanted[r.Port] = r
	}
	for port, r := range s.plugged {
		if _, found := wanted[port]; !found {
			s.unplug(r)
			delete(s.plugged, port)
		}
	}
	for port, r := range wanted {
		if _, found := s.plugged[port]; !found {
			s.plug(r)
			s.plugged[port] = r
		}
	}
}

// record is what agents get of an interface.
type record struct {
	Pod       string `json:"pod-uid"`
	Name      string `json:"name"`
	Port      string `json:"parent-interface"`
	MAC       string `json:"mac-address"`
	Addresses []struct {
		IP      netip.Addr `json:"ip"`
		Length  int        `json:"prefix-length"`
		Gateway netip.Addr `json:"gateway"`
	} `json:"address"`
}

func (r record) pod(t *testing.T) ovnhost.Pod {
	t.Helper()
	mac, err := net.ParseMAC(r.MAC)
	require.NoError(t, err)
	require.NotEmpty(t, r.Addresses)
	a := r.Addresses[0]
	return ovnhost.Pod{
		Host: "host1", Name: r.Name, UID: r.Pod, PortName: r.Port, MAC: mac, Address: netip.PrefixFrom(a.IP, a.Length), Gateway: a.Gateway,
	}
}

// clear deletes all pods and services, and waits until OpenDaylight has nothing of them.
func (l *teller) clear() {
	l.t.Helper()
	for _, tree := range []string{"pod:coe", "service:service-information"} {
		status, text := l.bridge.Do(http.MethodDelete, "/restconf/config/"+tree, "")
		require.Contains(l.t, []int{http.StatusOK, http.StatusNotFound}, status, text)
	}
	l.check(story.Step{File: "the empty model"}, "", l.model)
}

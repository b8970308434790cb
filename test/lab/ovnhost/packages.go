package ovnhost

import (
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// needs are the schemas and programs of a lab, with their Debian packages.
var needs = []struct{ pkg, name string }{
	{"openvswitch-switch", "ovs-vswitchd"},
	{"openvswitch-switch", "ovs-vsctl"},
	{"openvswitch-switch", "ovsdb-server"},
	{"openvswitch-switch", "ovsdb-tool"},
	{"openvswitch-switch", vswitchSchema},
	{"ovn-central", "ovn-northd"},
	{"ovn-central", "ovn-nbctl"},
	{"ovn-central", "ovn-sbctl"},
	{"ovn-central", nbSchema},
	{"ovn-central", sbSchema},
	{"ovn-host", "ovn-controller"},
	{"iproute2", "ip"},
	{"ethtool", "ethtool"},
	{"iputils-ping", "ping"},
	{"curl", "curl"},
}

// Missing returns the required Debian packages that are not installed.
func Missing() []string {
	var missing []string
	for _, n := range needs {
		if !installed(n.name) && !slices.Contains(missing, n.pkg) {
			missing = append(missing, n.pkg)
		}
	}
	return missing
}

func installed(name string) bool {
	if strings.Contains(name, "/") {
		_, err := os.Stat(ovsdb.Schema(name))
		return err == nil
	}
	_, err := exec.LookPath(name)
	return err == nil
}

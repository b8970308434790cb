package hostile_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

// The listeners of the guide.
var (
	northbound = net.JoinHostPort(ovnhost.Central.String(), "6641")
	southbound = net.JoinHostPort(ovnhost.Central.String(), "6642")
)

// answerWithin is the time in which a server must answer or refuse.
const answerWithin = 2 * time.Minute

// databases is an OVN of two hosts, encrypted as the guide says. One host is captured.
type databases struct {
	*ovnhost.Lab
	certificates string
	captured     *ovnhost.Host
}

func newDatabases(t *testing.T) databases {
	lab := ovnhost.ForTest(t, "captured", "victim")
	d := databases{lab, ovnCertificates(t, "captured", "victim"), lab.Host("captured")}
	require.NoError(t, guide.EncryptOVN(t.Context(), lab, d.certificates))
	_, err := lab.NBCtl(t.Context(), "ls-add", "net", "--", "lsp-add", "net", "port", "--", "lsp-set-addresses", "port", "0a:58:0a:0b:00:02 10.11.0.2")
	require.NoError(t, err)
	require.NoError(t, lab.Sync(t.Context()))
	return d
}

// ovnCertificates runs deploy/ovn-certificates, and returns its folder.
func ovnCertificates(t *testing.T, nodes ...string) string {
	t.Helper()
	script, err := filepath.Abs("../../../deploy/ovn-certificates")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), script, nodes...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(cmd.Dir, "certificates/ovn")
}

// asChassis runs ovn-sbctl on the captured host, with the certificate of its chassis.
func (d databases) asChassis(t *testing.T, args ...string) (string, error) {
	t.Helper()
	of := filepath.Join(d.certificates, "nodes", d.captured.Name)
	argv := append([]string{
		"netns", "exec", d.Namespace(d.captured.Name), "ovn-sbctl", "--db=ssl:" + southbound, "--timeout=30",
		"--private-key=" + of + "/chassis.key", "--certificate=" + of + "/chassis.crt", "--ca-cert=" + of + "/ca.crt",
	}, args...)
	out, err := exec.CommandContext(t.Context(), "ip", argv...).CombinedOutput()
	return strings.ReplaceAll(string(out), `\"`, `"`), err
}

// uuid returns the UUID of the first row of the southbound database that meets the conditions.
func (d databases) uuid(t *testing.T, table string, conditions ...string) string {
	t.Helper()
	out, err := d.SBCtl(t.Context(), append([]string{"--bare", "--columns=_uuid", "find", table}, conditions...)...)
	require.NoError(t, err)
	require.NotEmpty(t, strings.Fields(out), "%s %v", table, conditions)
	return strings.Fields(out)[0]
}

// identity is a client certificate. nil means that the client has none.
type identity *tls.Certificate

func (d databases) identity(t *testing.T, file string) identity {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(d.certificates, file+".crt"), filepath.Join(d.certificates, file+".key"))
	require.NoError(t, err)
	return &pair
}

// list reads the names of a server's databases from the captured host.
func (d databases) list(t *testing.T, at string, encrypted bool, as identity) (string, error) {
	t.Helper()
	ns, err := netns.GetFromName(d.Namespace(d.captured.Name))
	require.NoError(t, err)
	defer func() { _ = ns.Close() }()
	var conn net.Conn
	err = links.Inside(ns, func() (err error) {
		conn, err = net.DialTimeout("tcp", at, answerWithin)
		return err
	})
	require.NoError(t, err, "the server listens")
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(answerWithin)))
	if encrypted {
		config := &tls.Config{InsecureSkipVerify: true} // the attacker accepts every server
		if as != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return as, nil }
		}
		conn = tls.Client(conn, config)
	}
	// With TLS 1.3 a server refuses a certificate after the client's handshake, so this may
	// be written before or after the server has closed. The server sends the reason in any case.
	_, wrote := conn.Write([]byte(`{"method":"list_dbs","params":[],"id":1}`))
	var answer struct{ Result []string }
	read := json.NewDecoder(conn).Decode(&answer)
	return strings.Join(answer.Result, " "), errors.Join(wrote, read)
}

// The databases of the guide answer only clients with a certificate of their CA. A pod with the node's
// network has none, and a captured node has none for the northbound database.
func TestDatabasesRefuseStrangers(t *testing.T) {
	d := newDatabases(t)
	chassis, bridge := d.identity(t, "nodes/captured/chassis"), d.identity(t, "bridge/tls")
	other := pki.New(t, "coe-bridge-ovn-chassis-ca").Issue(t, "captured")
	forged, err := tls.X509KeyPair(other.Cert, other.Key)
	require.NoError(t, err)
	for _, c := range []struct {
		name      string
		at        string
		in        string // the database in the answer; empty if the server refuses
		cleartext bool
		as        identity
	}{
		{name: "the bridge at the northbound", at: northbound, as: bridge, in: "OVN_Northbound"},
		{name: "a chassis at the southbound", at: southbound, as: chassis, in: "OVN_Southbound"},
		{name: "a chassis at the northbound", at: northbound, as: chassis},
		{name: "the bridge at the southbound", at: southbound, as: bridge},
		{name: "nobody at the northbound", at: northbound},
		{name: "nobody at the southbound", at: southbound},
		{name: "another CA of the same name at the northbound", at: northbound, as: &forged},
		{name: "another CA of the same name at the southbound", at: southbound, as: &forged},
		{name: "cleartext at the northbound", at: northbound, cleartext: true},
		{name: "cleartext at the southbound", at: southbound, cleartext: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, err := d.list(t, c.at, !c.cleartext, c.as)
			if c.in != "" {
				require.NoError(t, err)
				require.Contains(t, answer, c.in)
				return
			}
			require.Empty(t, answer)
			require.Error(t, err)
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the server refuses the connection")
			if !c.cleartext {
				require.ErrorContains(t, err, "remote error: tls:")
			}
		})
	}
}

// A server cannot use the certificate of a chassis, or of the bridge: clients refuse it.
func TestAChassisPosesAsNoDatabase(t *testing.T) {
	certificates := ovnCertificates(t, "captured", "victim")
	client := pki.Paths{Cert: certificates + "/nodes/victim/chassis.crt", Key: certificates + "/nodes/victim/chassis.key"}
	for server, accepted := range map[string]bool{"databases/server": true, "nodes/captured/chassis": false, "bridge/tls": false} {
		t.Run(server, func(t *testing.T) {
			port, of := ovsdb.FreePort(t), filepath.Join(certificates, server)
			ovsdb.Start(t, "--remote=pssl:"+port+":127.0.0.1", "--private-key="+of+".key", "--certificate="+of+".crt", "--ca-cert="+certificates+"/chassis-ca.crt")
			out, err := exec.CommandContext(t.Context(), "ovsdb-client", "--timeout=30", "--private-key="+client.Key, "--certificate="+client.Cert,
				"--ca-cert="+certificates+"/ca.crt", "list-dbs", "ssl:127.0.0.1:"+port).CombinedOutput()
			require.Equal(t, accepted, err == nil, "%s", out)
			require.Equal(t, !accepted, strings.Contains(string(out), "certificate verify failed"), "%s", out)
		})
	}
}

// A captured node has the certificate of its chassis. The role of the listener refuses writes to the
// rows of other chassis, and to all rows that ovn-northd writes.
func TestWhatTheRoleOfAChassisRefuses(t *testing.T) {
	d := newDatabases(t)
	encap, datapath, flow := d.uuid(t, "Encap", "chassis_name=victim"), d.uuid(t, "Datapath_Binding"), d.uuid(t, "Logical_Flow", `actions="next;"`)
	for _, attack := range []string{
		"set Chassis victim hostname=captured",
		"set Chassis captured hostname=victim",
		"set Chassis captured name=victim2",
		"destroy Chassis victim",
		"chassis-add other geneve 172.31.99.99",
		"set Encap " + encap + " ip=172.31.99.11",
		"set Chassis_Private victim nb_cfg=7",
		"destroy Chassis_Private victim",
		"create Datapath_Binding tunnel_key=77",
		"destroy Datapath_Binding " + datapath,
		"create Port_Binding datapath=" + datapath + " logical_port=other tunnel_key=77",
		`set Port_Binding port mac="0a:58:0a:0b:00:03"`,
		"set Port_Binding port tunnel_key=77",
		"destroy Port_Binding port",
		"create Logical_Flow pipeline=ingress table_id=0 priority=1 match=1 actions=next; logical_datapath=" + datapath,
		"set Logical_Flow " + flow + " actions=drop;",
		"destroy Logical_Flow " + flow,
		"create Address_Set name=other addresses=10.11.0.2",
		"create Load_Balancer name=other",
		"create DNS records:a=10.11.0.2",
		"set SB_Global . nb_cfg=77",
		"set SB_Global . options:northd_probe_interval=1",
		"set-connection pssl:16642",
		`set Connection . role=""`,
		"del-connection",
		"del-ssl",
		"clear RBAC_Permission Chassis authorization",
		"create RBAC_Role name=other",
	} {
		t.Run(attack, func(t *testing.T) {
			out, err := d.asChassis(t, strings.Fields(attack)...)
			require.Error(t, err, out)
			require.Contains(t, out, `RBAC rules for client "captured" role "ovn-controller" prohibit`)
		})
	}
}

// The role allows these writes of a chassis. docs/security.md lists them as remaining risks.
func TestWhatTheRoleOfAChassisLeaves(t *testing.T) {
	d := newDatabases(t)
	chassis, encap, datapath := d.uuid(t, "Chassis", "name=captured"), d.uuid(t, "Encap", "chassis_name=captured"), d.uuid(t, "Datapath_Binding")
	require.NoError(t, d.captured.Controller.Stop()) // it would correct its rows
	for _, attack := range []string{
		"show",
		"set Port_Binding port up=false",
		"set Port_Binding port chassis=" + chassis,
		"set Port_Binding port options:requested-chassis=captured", // until ovn-northd writes it again
		"set Encap " + encap + " ip=172.31.99.99",
		`create MAC_Binding logical_port=port ip=10.11.0.2 mac="0a:58:0a:0b:00:03" datapath=` + datapath,
		`create FDB mac="0a:58:0a:0b:00:03" dp_key=1 port_key=1`,
		"create IGMP_Group address=239.0.0.1 datapath=" + datapath + " chassis=" + chassis,
	} {
		out, err := d.asChassis(t, strings.Fields(attack)...)
		require.NoError(t, err, "%s: %s", attack, out)
	}
}

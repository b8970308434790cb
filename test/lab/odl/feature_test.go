package odl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAdaptFeature(t *testing.T) {
	const published = `<?xml version="1.0" encoding="UTF-8"?>
<features xmlns="http://karaf.apache.org/xmlns/features/v1.4.0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" name="odl-netvirt-impl">
    <repository>mvn:org.opendaylight.genius/odl-genius/0.4.0/xml/features</repository>
    <feature name="odl-netvirt-impl" description="d" version="0.6.0">
        <details>d</details>
        <feature version="[0.4,1)" prerequisite="false">odl-genius</feature>
        <bundle start-level="80">mvn:org.opendaylight.netvirt/neutronvpn-impl/0.6.0</bundle>
        <bundle>mvn:org.opendaylight.netvirt/neutronvpn-api/0.6.0</bundle>
        <configfile finalname="etc/a.cfg">mvn:g/a/1/cfg/config</configfile>
    </feature>
</features>`
	const want = `<features xmlns="http://karaf.apache.org/xmlns/features/v1.4.0" name="netvirt-restconf">
  <repository>mvn:org.opendaylight.netconf/odl-restconf-nb-rfc8040/1.7.0/xml/features</repository>
  <repository>mvn:org.opendaylight.netconf/odl-restconf/1.7.0/xml/features</repository>
  <repository>mvn:org.opendaylight.genius/odl-genius/0.4.0/xml/features</repository>
  <feature name="netvirt-restconf" description="d" version="1.0.0">
    <details>d</details>
    <feature version="[0.4,1)" prerequisite="false">odl-genius</feature>
    <bundle>mvn:org.opendaylight.netvirt/neutronvpn-api/0.6.0</bundle>
    <configfile finalname="etc/a.cfg">mvn:g/a/1/cfg/config</configfile>
    <feature version="1.7.0">odl-restconf</feature>
    <feature version="1.7.0">odl-restconf-nb-rfc8040</feature>
    <bundle>mvn:coebridge.test/neutronvpn-absent/1.0.0</bundle>
  </feature>
</features>`
	got, err := adaptFeature([]byte(published), "1.7.0")
	require.NoError(t, err)
	require.Equal(t, want, string(got))

	_, err = adaptFeature([]byte("<features/>"), "1.7.0")
	require.ErrorContains(t, err, "it contains none")
	_, err = adaptFeature([]byte("<features>"), "1.7.0")
	require.Error(t, err)
}

func TestArtifact(t *testing.T) {
	a := artifact{"org.opendaylight.netvirt", "odl-netvirt-impl", "0.6.0", "features", "xml"}
	require.Equal(t, "org.opendaylight.netvirt:odl-netvirt-impl:0.6.0:xml:features", a.coordinates())
	require.Equal(t, "org/opendaylight/netvirt/odl-netvirt-impl/0.6.0/odl-netvirt-impl-0.6.0-features.xml", a.path())
	require.Equal(t, "com/bea/xml/jsr173-ri/1.0/jsr173-ri-1.0.jar", xmlLibrary.path())
}

func TestUnknownRelease(t *testing.T) {
	_, err := Install(t.Context(), "boron", t.Output())
	require.ErrorContains(t, err, "have [oxygen neon]")
}

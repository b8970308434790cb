*** Settings ***
Documentation       The use cases TC1 to TC4 of the specification "Netvirt COE Integration", one after the other.
Resource            ../resources/netvirt.resource

Suite Setup         Write Pool And Node
Suite Teardown      Remove All Entries

Test Tags           specification


*** Variables ***
${ELAN}                 ${NODE_ADDRESS}:${NAMESPACE}
${INTERFACE}            ${NAMESPACE}:${POD_NAME}
${SECOND_INTERFACE}     ${NAMESPACE}:${SECOND_POD_NAME}
${SECOND_POD}           ${DRAFT02.data}/${POD.container}/pods/${SECOND_POD_UID}
${SERVICE_ENTRY}        ${DRAFT02.data}/${SERVICE.container}/services/${SERVICE_UID}


*** Test Cases ***
TC1 Create A Pod Within A Node Under A Namespace
    [Documentation]    The first pod of a namespace on a node makes elan-instance and vpn-instance.
    [Tags]    odl    tc1
    ${body}=    Body    pod.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    ${object}=    Wanted    ${ELAN_INSTANCES}    ${ELAN}
    Should Be Equal    ${object}[segment-type]    elan:segment-type-vxlan
    ${object}=    Wanted    ${VPN_INSTANCES}    ${NAMESPACE}
    Should Be Equal    ${object}[type]    l3
    ${object}=    Wanted    ${INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[type]    iana-if-type:l2vlan
    Should Be Equal    ${object}[odl-interface:l2vlan-mode]    trunk
    ${object}=    Wanted    ${ELAN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${ELAN}

TC1 The Pod Is In Its VPN With Its Address
    [Documentation]    OpenDaylight makes vpn-interfaces once the switch has the port.
    [Tags]    tc1
    ${object}=    Wanted    ${VPN_INTERFACES}    ${INTERFACE}
    Should Be Equal    ${object}[vpn-instance-names][0][vpn-name]    ${NAMESPACE}
    VAR    ${adjacency}    ${object}[odl-l3vpn:adjacency][0]
    Should Be Equal    ${adjacency}[ip_address]    ${POD_ADDRESS}/32
    ${object}=    Wanted    ${ELAN_INTERFACES}    ${INTERFACE}
    VAR    ${entry}    ${object}[static-mac-entries][0]
    Should Be Equal    ${entry}[ip-prefix]    ${POD_ADDRESS}
    Should Be Equal    ${entry}[mac-address]    ${adjacency}[mac_address]

TC1 The Backend Has The Pod
    [Tags]    tc1    ovn
    Wait For Sync
    FOR    ${kind}    IN    ${INTERFACES}    ${ELAN_INTERFACES}    ${VPN_INTERFACES}
        Confirmed    ${kind}    ${INTERFACE}
    END
    Confirmed    ${ELAN_INSTANCES}    ${ELAN}
    Confirmed    ${VPN_INSTANCES}    ${NAMESPACE}
    Row Should Exist    Logical_Switch_Port    ${INTERFACE}
    ${addresses}=    Northbound    lsp-get-addresses    ${INTERFACE}
    Should Contain    ${addresses}    ${POD_ADDRESS}

TC1 A Second Pod Of The Namespace Joins Both Instances
    [Tags]    odl    tc1
    ${body}=    Body    second-pod.json
    Request    POST    ${DRAFT02.data}/${POD.container}    ${body}    expected=204
    Wanted    ${INTERFACES}    ${SECOND_INTERFACE}
    ${object}=    Wanted    ${ELAN_INTERFACES}    ${SECOND_INTERFACE}
    Should Be Equal    ${object}[elan-instance-name]    ${ELAN}
    ${answer}=    Request    GET    ${DRAFT02.data}/${ELAN_INSTANCES.path}    expected=200
    ${of_namespace}=    Evaluate
    ...    [e for e in $answer.json()['elan-instances']['elan-instance'] if e['elan-instance-name'].endswith(':${NAMESPACE}')]
    Length Should Be    ${of_namespace}    1

TC2 Attach Pods To A Service
    [Tags]    tc2
    ${body}=    Body    service-with-pods.json
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=201
    ${ports}=    Wanted    ${FLOATING}    ${NAMESPACE}
    ${external}=    Evaluate
    ...    {p['port-name']: p['internal-to-external-port-map'][0]['external-ip'] for p in $ports['ports']}
    VAR    &{want}    ${INTERFACE}=${SERVICE_ADDRESS}    ${SECOND_INTERFACE}=${SERVICE_ADDRESS}
    Dictionaries Should Be Equal    ${external}    ${want}
    Endpoints Should Be    ${POD_ADDRESS}    ${SECOND_POD_ADDRESS}

TC2 The Backend Has The Service
    [Tags]    tc2    ovn
    Wait For Sync
    Confirmed    ${SERVICES}    ${SERVICE_UID}
    ${balancers}=    Northbound    --bare    --columns\=vips    list    Load_Balancer
    Should Contain    ${balancers}    ${SERVICE_ADDRESS}:80
    Should Contain    ${balancers}    ${POD_ADDRESS}:8080
    Should Contain    ${balancers}    ${SECOND_POD_ADDRESS}:8080

TC3 Remove Pods From The Service
    [Tags]    tc3
    ${value}=    Body As Value    service-with-pods.json
    Remove From List    ${value}[service:services][0][endpoints]    0
    ${body}=    Evaluate    json.dumps($value)
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=200
    Wait Until Keyword Succeeds    ${PATIENCE}    50ms    Endpoints Should Be    ${SECOND_POD_ADDRESS}
    ${ports}=    Wanted    ${FLOATING}    ${NAMESPACE}
    Length Should Be    ${ports}[ports]    1
    Should Be Equal    ${ports}[ports][0][port-name]    ${SECOND_INTERFACE}
    ${body}=    Body    service.json
    Request    PUT    ${SERVICE_ENTRY}    ${body}    expected=200
    Gone    ${FLOATING}    ${NAMESPACE}
    ${object}=    Wanted    ${SERVICES}    ${SERVICE_UID}
    Should Not Contain    ${object}[vip][0]    endpoint

TC3 The Backend Leads To Nobody
    [Tags]    tc3    ovn
    Wait For Sync
    ${balancers}=    Northbound    --bare    --columns\=vips    list    Load_Balancer
    Should Contain    ${balancers}    ${SERVICE_ADDRESS}:80
    Should Not Contain    ${balancers}    :8080

TC4 Delete A Pod From A Namespace
    [Tags]    odl    tc4
    Request    DELETE    ${SECOND_POD}    expected=200
    Request    GET    ${SECOND_POD}    expected=404
    Wanted    ${INTERFACES}    ${INTERFACE}
    Wanted    ${ELAN_INSTANCES}    ${ELAN}
    Wanted    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 The Pod's Interfaces Go
    [Documentation]    OpenDaylight takes them away if a switch had the port; else its renderer fails.
    [Tags]    tc4
    Gone    ${INTERFACES}    ${SECOND_INTERFACE}
    Gone    ${ELAN_INTERFACES}    ${SECOND_INTERFACE}
    Gone    ${VPN_INTERFACES}    ${SECOND_INTERFACE}
    Wanted    ${INTERFACES}    ${INTERFACE}
    Wanted    ${ELAN_INSTANCES}    ${ELAN}
    Wanted    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 With The Last Pod Both Instances Go
    [Documentation]    OpenDaylight keeps elan-instances and vpn-instances.
    [Tags]    tc4
    Request    DELETE    ${DRAFT02.data}/${POD.container}/pods/${POD_UID}    expected=200
    FOR    ${kind}    IN    ${INTERFACES}    ${ELAN_INTERFACES}    ${VPN_INTERFACES}
        Gone    ${kind}    ${INTERFACE}
    END
    Gone    ${ELAN_INSTANCES}    ${ELAN}
    Gone    ${VPN_INSTANCES}    ${NAMESPACE}

TC4 The Backend Has Forgotten The Pods
    [Tags]    tc4    ovn
    Wait For Sync
    Row Should Not Exist    Logical_Switch_Port    ${INTERFACE}
    Row Should Not Exist    Logical_Switch_Port    ${SECOND_INTERFACE}


*** Keywords ***
Write Pool And Node
    Begin With Nothing
    ${body}=    Body    pool.json
    Request    POST    ${DRAFT02.data}/${POOL.container}/    ${body}    expected=204
    ${body}=    Body    node.json
    Request    POST    ${DRAFT02.data}/${NODE.container}    ${body}    expected=204

Endpoints Should Be
    [Documentation]    Who answers at the service's address.
    [Arguments]    @{want}
    ${object}=    Wanted    ${SERVICES}    ${SERVICE_UID}
    VAR    ${vip}    ${object}[vip][0]
    Should Be Equal    ${vip}[address]    ${SERVICE_ADDRESS}
    ${addresses}=    Evaluate    [e['address'] for e in $vip['endpoint'] if e['port'] == 8080]
    Lists Should Be Equal    ${addresses}    ${want}

"""The nouns of iGSM: for each category, five themes of 20 words.

A theme is a pool: its words follow its name and a colon. `tasks.igsm.words` reads them.
"""

POOLS = {
    # harbour
    "Harbours": """
        northern ports: Bergen Tromso Aarhus Esbjerg Kiel Rostock Gdansk Riga Tallinn Turku Narvik Stavanger Trondheim
            Malmo Kalmar Visby Bremen Emden Harwich Grimsby
        southern ports: Genoa Livorno Bari Ancona Trieste Split Piraeus Izmir Haifa Valletta Palermo Cadiz Malaga
            Cartagena Toulon Marseille Ajaccio Bizerte Oran Corfu
        eastern ports: Yokohama Kobe Nagasaki Busan Incheon Dalian Qingdao Ningbo Xiamen Shantou Keelung Kaohsiung
            Haiphong Danang Penang Surabaya Makassar Cebu Davao Kandla
        western ports: Halifax Gloucester Boston Newport Norfolk Savannah Mobile Galveston Tampico Veracruz Havana
            Kingston Bridgetown Paramaribo Belem Recife Santos Montevideo Valparaiso Callao
        oceanic ports: Dakar Conakry Abidjan Tema Lome Cotonou Douala Luanda Walvis Durban Maputo Beira Mombasa Djibouti
            Aden Fremantle Darwin Hobart Lyttelton Suva
    """,
    "Ships": """
        warships: Frigate Corvette Destroyer Cruiser Galleon Trireme Dreadnought Minesweeper Submarine Gunboat Privateer
            Monitor Ironclad Bireme Battleship Carrier Torpedoer Brigantine Xebec Manowar
        sailing vessels: Sloop Ketch Yawl Schooner Clipper Barque Brig Cutter Lugger Caravel Carrack Dhow Junk Felucca
            Pinnace Windjammer Catamaran Trimaran Smack Hooker
        working vessels: Trawler Tugboat Dredger Icebreaker Whaler Collier Lighter Seiner Drifter Longliner Tanker
            Freighter Coaster Reefer Pilotboat Fireboat Lightship Cablelayer Bulker Tramp
        passenger vessels: Ferry Liner Yacht Steamer Hydrofoil Hovercraft Packet Paddler Showboat Houseboat Waterbus
            Vaporetto Riverboat Cabincruiser Motorboat Speedboat Launch Tender Steamboat Mailboat
        small boats: Dinghy Canoe Kayak Punt Skiff Gondola Coracle Raft Rowboat Dory Wherry Sampan Pirogue Umiak Proa
            Gig Whaleboat Lifeboat Pram Scull
    """,
    "Crates": """
        fruit crates: AppleCrate PearCrate PlumCrate LemonCrate OrangeCrate BananaCrate MangoCrate PapayaCrate
            GuavaCrate LycheeCrate PeachCrate ApricotCrate CherryCrate GrapeCrate MelonCrate FigCrate DateCrate
            LimeCrate QuinceCrate KiwiCrate
        fish boxes: CodBox HerringBox MackerelBox SardineBox TunaBox SalmonBox TroutBox HaddockBox HalibutBox AnchovyBox
            SquidBox OysterBox MusselBox ShrimpBox LobsterBox CrabBox EelBox SoleBox TurbotBox PollockBox
        chests: TeaChest CoffeeChest CocoaChest SilkChest LinenChest CottonChest WoolChest PorcelainChest SilverChest
            CoinChest LetterChest MapChest BookChest CandleChest SoapChest PerfumeChest IvoryChest AmberChest PearlChest
            ToyChest
        barrels: RumBarrel WineBarrel BeerBarrel CiderBarrel OilBarrel TarBarrel WaterBarrel VinegarBarrel HoneyBarrel
            SyrupBarrel BrineBarrel TallowBarrel PitchBarrel PowderBarrel MolassesBarrel OliveBarrel PickleBarrel
            ButterBarrel SherryBarrel WhiskyBarrel
        sacks: RiceSack WheatSack OatSack BarleySack RyeSack MilletSack MaizeSack LentilSack BeanSack PeaSack PotatoSack
            OnionSack TurnipSack FlourSack SugarSack SaltSack CementSack CharcoalSack FeatherSack SandSack
    """,
    "Tools": """
        cutting tools: Hacksaw Handsaw Chisel Scissors Scalpel Machete Hatchet Adze Plane Rasp File Shears Sickle Scythe
            Knife Razor Snips Fretsaw Gouge Spokeshave
        striking and digging tools: Hammer Mallet Sledge Crowbar Pickaxe Shovel Spade Mattock Trowel Maul Punch Wedge
            Auger Hoe Pitchfork Rake Tamper Gavel Dibber Jackhammer
        measuring tools: Ruler Caliper Micrometer Protractor Compass Sextant Plumb Level Gauge Square Divider Theodolite
            Barometer Thermometer Scale Stopwatch Odometer Voltmeter Hydrometer Chronometer
        gripping tools: Pliers Wrench Spanner Clamp Vise Tongs Tweezers Forceps Pincers Hook Winch Pulley Hoist Capstan
            Grapnel Shackle Carabiner Tourniquet Ratchet Screwdriver
        fixing and finishing tools: Nail Screw Bolt Rivet Staple Paintbrush Roller Spatula Sander Drill Stapler Solderer
            Needle Awl Marlinspike Fid Sponge Broom Mop Caulker
    """,
    # orchestra
    "Orchestras": """
        river symphonies: RhineSymphony DanubeSymphony ElbeSymphony OderSymphony VistulaSymphony VolgaSymphony
            LoireSymphony SeineSymphony RhoneSymphony EbroSymphony TagusSymphony TiberSymphony ThamesSymphony
            SevernSymphony ShannonSymphony NileSymphony NigerSymphony GangesSymphony MekongSymphony AmazonSymphony
        composer societies: BachSociety HandelSociety HaydnSociety MozartSociety SchubertSociety SchumannSociety
            BrahmsSociety DvorakSociety ElgarSociety SibeliusSociety GriegSociety LisztSociety ChopinSociety
            VerdiSociety RossiniSociety VivaldiSociety RavelSociety DebussySociety MahlerSociety BartokSociety
        bird bands: RobinBand WrenBand FinchBand SparrowBand StarlingBand SwallowBand SwiftBand MartinBand LarkBand
            PipitBand ThrushBand OrioleBand LinnetBand SiskinBand MagpieBand RavenBand HeronBand CraneBand StorkBand
            PelicanBand
        mountain philharmonics: EtnaPhilharmonic ElbrusPhilharmonic AraratPhilharmonic OlympusPhilharmonic
            ParnassusPhilharmonic MatterhornPhilharmonic EigerPhilharmonic DenaliPhilharmonic RainierPhilharmonic
            ShastaPhilharmonic LoganPhilharmonic AconcaguaPhilharmonic ChimborazoPhilharmonic KenyaPhilharmonic
            MeruPhilharmonic FujiPhilharmonic EverestPhilharmonic AnnapurnaPhilharmonic KailashPhilharmonic
            SnowdonPhilharmonic
        dance orchestras: WaltzOrchestra PolkaOrchestra TangoOrchestra RumbaOrchestra SambaOrchestra FoxtrotOrchestra
            BoleroOrchestra MazurkaOrchestra MinuetOrchestra GavotteOrchestra SarabandeOrchestra GigueOrchestra
            BourreeOrchestra PavaneOrchestra GalliardOrchestra TarantellaOrchestra FandangoOrchestra CsardasOrchestra
            QuadrilleOrchestra LandlerOrchestra
    """,
    "Sections": """
        bowed strings: Violin Viola Cello Contrabass Fiddle Viol Gamba Baryton Rebec Erhu Kemenche Sarangi Nyckelharpa
            Hardanger Crwth Violone Violetta Arpeggione Morinkhuur Rebab
        woodwinds: Flute Piccolo Oboe Clarinet Bassoon Saxophone Recorder Shawm Dulcian Crumhorn Ocarina Panpipe Fife
            Shakuhachi Duduk Chalumeau Heckelphone Contrabassoon Flageolet Bagpipe
        brass: Trumpet Trombone Tuba Cornet Flugelhorn Euphonium Sousaphone Bugle Sackbut Serpent Ophicleide Mellophone
            Cimbasso Saxhorn Alphorn Shofar Horn Cornett Helicon Baritone
        percussion: Timpani Snare Cymbal Triangle Xylophone Marimba Vibraphone Glockenspiel Tambourine Castanet Gong
            Tamtam Bongo Conga Djembe Tabla Cowbell Woodblock Maraca Guiro
        plucked strings and keyboards: Harp Guitar Lute Mandolin Banjo Zither Sitar Koto Balalaika Ukulele Theorbo Lyre
            Piano Harpsichord Celesta Organ Clavichord Harmonium Accordion Spinet
    """,
    "Cases": """
        wooden cases: OakCase PineCase BirchCase MapleCase WalnutCase CherryCase TeakCase CedarCase EbonyCase
            RosewoodCase BeechCase ElmCase AlderCase PoplarCase BambooCase MahoganyCase SpruceCase LarchCase HickoryCase
            YewCase
        cloth bags: CanvasBag VelvetBag SilkBag LinenBag CottonBag WoolBag FeltBag DenimBag TweedBag SatinBag NylonBag
            JuteBag HempBag FlannelBag CorduroyBag MuslinBag TaffetaBag BrocadeBag DamaskBag GinghamBag
        metal trunks: SteelTrunk IronTrunk BrassTrunk CopperTrunk TinTrunk ZincTrunk BronzeTrunk PewterTrunk SilverTrunk
            NickelTrunk ChromeTrunk TitaniumTrunk AluminiumTrunk CobaltTrunk LeadTrunk GoldTrunk PlatinumTrunk
            WolframTrunk ManganeseTrunk PalladiumTrunk
        coloured sleeves: RedSleeve BlueSleeve GreenSleeve YellowSleeve OrangeSleeve PurpleSleeve PinkSleeve BrownSleeve
            BlackSleeve WhiteSleeve GreySleeve CrimsonSleeve ScarletSleeve IndigoSleeve VioletSleeve TurquoiseSleeve
            OchreSleeve BeigeSleeve MaroonSleeve TealSleeve
        travelling cases: Suitcase Valise Satchel Portmanteau Knapsack Rucksack Duffel Holdall Briefcase Attache
            Haversack Handbag Carpetbag Casket Coffer Holster Quiver Scabbard Caddy Reticule
    """,
    "Accessories": """
        string players' things: Rosin Mute Chinrest Shoulderpad Tailpiece Fingerboard Bridge Soundpost Peg Plectrum Capo
            Bow Endpin Finetuner Pegbox Fret Tuningfork Slide Strap Fingerpick
        wind players' things: Reed Ligature Mouthpiece Swab Thumbrest Neckstrap Bocal Crook Valve Spitkey Padsaver
            Corkgrease Headjoint Plunger Harmon Barreljoint Bellcover Reedcase Pullthrough Keyoil
        the conductor's desk: Baton Podium Score Lectern Pencil Eraser Bookmark Metronome Stopper Tuner Footstool Bell
            Notebook Desklamp Spectacles Hourglass Inkwell Clipboard Sheetmusic Pagemarker
        concert dress: Bowtie Cufflink Tailcoat Waistcoat Cummerbund Brooch Gloves Scarf Shawl Gown Tiara Necklace
            Earring Handkerchief Boutonniere Lapel Shoelace Suspenders Tophat Hairpin
        the technician's box: Microphone Amplifier Headphone Cable Adapter Battery Speaker Mixer Preamp Pedal Equalizer
            Splitter Windscreen Tripod Fader Limiter Patchbay Antenna Transmitter Earplug
    """,
    # galaxy
    "Galaxies": """
        northern constellations: Andromeda Cassiopeia Cepheus Cygnus Lyra Aquila Draco Perseus Auriga Bootes Hercules
            Pegasus Delphinus Lynx Lacerta Triangulum Vulpecula Sagitta Equuleus Camelopardalis
        southern constellations: Centaurus Crux Carina Vela Puppis Pyxis Fornax Sculptor Phoenix Grus Tucana Pavo Indus
            Dorado Volans Mensa Musca Apus Norma Lupus
        nicknames: Whirlpool Sombrero Pinwheel Cartwheel Tadpole Sunflower Cigar Fireworks Butterfly Needlework Spindle
            Blackeye Hockeystick Silverdollar Skyrocket Porpoise Starburst Backward Umbrella Splinter
        titans and heroes: Cronus Oceanus Iapetus Theia Themis Mnemosyne Coeus Crius Atlas Prometheus Epimetheus
            Achilles Odysseus Ajax Hector Theseus Jason Orpheus Daedalus Icarus
        northern gods: Odin Thor Freya Loki Baldur Heimdall Tyr Njord Frigg Bragi Idun Skadi Vidar Vali Ullr Forseti
            Hodr Sif Nanna Ymir
    """,
    "Systems": """
        bright stars: Sirius Canopus Arcturus Vega Capella Rigel Procyon Achernar Betelgeuse Hadar Altair Acrux
            Aldebaran Antares Spica Pollux Fomalhaut Deneb Mimosa Regulus
        northern stars: Polaris Mizar Alcor Dubhe Merak Phecda Megrez Alioth Alkaid Thuban Etamin Rastaban Kochab
            Pherkad Albireo Sadr Gienah Sheliak Sulafat Vindemiatrix
        winter stars: Bellatrix Saiph Alnilam Alnitak Mintaka Elnath Alcyone Atik Mirfak Algol Mirach Almach Hamal
            Sheratan Menkar Mira Diphda Rana Zaurak Cursa
        summer stars: Kaus Nunki Ascella Shaula Lesath Sargas Dschubba Acrab Graffias Unukalhai Rasalhague Cebalrai
            Sabik Yed Tarazed Alshain Sadalsuud Sadalmelik Enif Scheat
        catalogue stars: AlphaCentauri BetaHydri GammaCrucis DeltaPavonis EpsilonEridani ZetaReticuli EtaCarinae
            ThetaScorpii IotaHorologii KappaCeti LambdaSerpentis MuArae NuScorpii XiBootis OmicronCeti PiMensae
            RhoCancri SigmaDraconis TauCeti UpsilonAndromedae
    """,
    "Planets": """
        the old planets and dwarfs: Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune Pluto Ceres Eris Haumea
            Makemake Sedna Quaoar Orcus Ixion Varuna Gonggong Vesta
        moons of Jupiter and Saturn: Europa Ganymede Callisto Amalthea Himalia Elara Thebe Metis Adrastea Titan Rhea
            Dione Tethys Enceladus Mimas Hyperion Phoebe Pandora Janus Telesto
        moons of Uranus and Neptune: Titania Naiad Oberon Ariel Umbriel Miranda Portia Juliet Cressida Desdemona
            Rosalind Belinda Cordelia Ophelia Bianca Caliban Sycorax Triton Nereid Proteus
        named planets of other stars: Dimidium Poltergeist Phobetor Draugr Galileo Brahe Janssen Lipperhey Harriot Spe
            Saffar Samh Majriti Taphao Orbitar Quijote Dulcinea Rocinante Sancho Thestias
        planets of stories: Arrakis Solaris Tatooine Vulcan Trantor Terminus Gethen Anarres Urras Hyperborea Barsoom
            Magrathea Krypton Caladan Lamarckia Perelandra Malacandra Mongo Tralfamadore Coruscant
    """,
    "Minerals": """
        gems: Diamond Ruby Sapphire Emerald Topaz Opal Garnet Amethyst Turquoise Peridot Aquamarine Tourmaline Spinel
            Zircon Jade Tanzanite Alexandrite Moonstone Beryl Citrine
        ores: Hematite Magnetite Pyrite Galena Cinnabar Bauxite Chalcopyrite Cassiterite Sphalerite Malachite Azurite
            Ilmenite Rutile Wolframite Scheelite Uraninite Chromite Stibnite Cuprite Bornite
        rocks: Granite Basalt Gabbro Diorite Andesite Rhyolite Obsidian Pumice Limestone Sandstone Shale Chalk Marble
            Slate Schist Gneiss Quartzite Dolerite Tuff Syenite
        silicates: Quartz Feldspar Olivine Augite Hornblende Biotite Muscovite Talc Kaolinite Serpentine Epidote Kyanite
            Andalusite Sillimanite Staurolite Wollastonite Zeolite Chlorite Orthoclase Albite
        salts and carbonates: Halite Gypsum Calcite Dolomite Aragonite Barite Fluorite Apatite Borax Anhydrite Siderite
            Rhodochrosite Magnesite Celestine Cryolite Sylvite Natron Witherite Strontianite Carnallite
    """,
    # farm
    "Farms": """
        kinds of farm: Homestead Ranch Croft Vineyard Orchard Dairy Hacienda Plantation Smallholding Grange Steading
            Manor Estate Nursery Apiary Hatchery Stud Allotment Kibbutz Farmhouse
        tree farms: WillowFarm OakFarm AshFarm ElmFarm BeechFarm HazelFarm HollyFarm RowanFarm AlderFarm AspenFarm
            BirchFarm CedarFarm LaurelFarm LindenFarm MapleFarm PineFarm YewFarm HawthornFarm ElderFarm ChestnutFarm
        animal granges: FoxGrange BadgerGrange HareGrange OtterGrange StoatGrange BeaverGrange StagGrange RamGrange
            BullGrange LambGrange OwlGrange HawkGrange KiteGrange RookGrange CrowGrange DoveGrange SwanGrange
            GooseGrange DrakeGrange TroutGrange
        places named for water: Sunnybrook Millbrook Coldstream Blackwater Clearwater Stonebrook Marshgate Fenbank
            Reedmere Wellspring Deepford Longford Ashbourne Silverbeck Otterburn Foxbrook Rushmere Willowbeck Greywell
            Saltmarsh
        places named for hills: Highcroft Hillcrest Stonyridge Windyridge Longacre Greenhill Foxdown Larkrise Moorend
            Topfield Hightor Blackdown Whitecliff Ravenscar Sheepfell Goatfell Harrowhill Upperdale Birkrigg Copthorne
    """,
    "Fields": """
        crop fields: WheatField BarleyField RyeField OatField MaizeField RiceField MilletField SorghumField SpeltField
            BuckwheatField FlaxField HempField CottonField RapeField MustardField SunflowerField SoyField LentilField
            PeaField BeanField
        flower meadows: CloverMeadow ButtercupMeadow DaisyMeadow PoppyMeadow CornflowerMeadow YarrowMeadow CowslipMeadow
            BluebellMeadow HarebellMeadow VetchMeadow SorrelMeadow KnapweedMeadow ScabiousMeadow FoxgloveMeadow
            LupinMeadow CampionMeadow BugleMeadow ThistleMeadow MallowMeadow OrchidMeadow
        animal paddocks: HorsePaddock PonyPaddock DonkeyPaddock MulePaddock CowPaddock CalfPaddock BullPaddock
            SheepPaddock EwePaddock LambPaddock GoatPaddock PigPaddock AlpacaPaddock LlamaPaddock BisonPaddock
            OstrichPaddock EmuPaddock GoosePaddock DuckPaddock TurkeyPaddock
        vegetable plots: PotatoPlot TurnipPlot SwedePlot BeetPlot CarrotPlot ParsnipPlot OnionPlot GarlicPlot LeekPlot
            CabbagePlot KalePlot SproutPlot SpinachPlot LettucePlot MarrowPlot PumpkinPlot SquashPlot TomatoPlot
            PepperPlot AsparagusPlot
        kinds of ground: Pasture Meadow Paddock Fallow Heath Moor Headland Terrace Glebe Lea Common Polder Downland
            Acreage Furlong Hayfield Stubble Prairie Savanna Fen
    """,
    "Beds": """
        garden flowers: Rose Tulip Lily Dahlia Peony Marigold Petunia Begonia Pansy Geranium Zinnia Aster Snapdragon
            Carnation Delphinium Larkspur Hollyhock Primrose Nasturtium Lobelia
        spring bulbs and wild flowers: Snowdrop Crocus Daffodil Hyacinth Bluebell Anemone Foxglove Cowslip Poppy
            Cornflower Daisy Buttercup Forgetmenot Columbine Campanula Scabious Fritillary Muscari Aconite Cyclamen
        vegetables: Carrot Parsnip Radish Beetroot Turnip Lettuce Spinach Cabbage Kale Leek Onion Shallot Pumpkin
            Courgette Cucumber Tomato Aubergine Artichoke Asparagus Celery
        berries: Strawberry Raspberry Blackberry Blueberry Gooseberry Redcurrant Blackcurrant Cranberry Loganberry
            Boysenberry Elderberry Mulberry Bilberry Lingonberry Cloudberry Tayberry Huckleberry Salmonberry Dewberry
            Chokeberry
        shrubs: Hydrangea Rhododendron Azalea Camellia Magnolia Fuchsia Heather Gorse Hibiscus Forsythia Lilac Wisteria
            Jasmine Honeysuckle Buddleia Oleander Viburnum Spirea Pyracantha Escallonia
    """,
    "Insects": """
        beetles: Ladybird Scarab Weevil Firefly Cockchafer Stagbeetle Rhinobeetle Dungbeetle Longhorn Glowworm
            Deathwatch Skipjack Blister Bombardier Tiger Whirligig Jewel Goliath Woodborer Rosechafer
        butterflies and moths: Monarch Swallowtail Peacock Brimstone Admiral Ringlet Gatekeeper Grayling Hairstreak
            Skipper Apollo Morpho Birdwing Hawkmoth Silkmoth Emperor Lappet Footman Cinnabarmoth Burnet
        bees, wasps and ants: Honeybee Bumblebee Hornet Wasp Carpenterbee Masonbee Leafcutter Ant Termite Sawfly
            Ichneumon Gallwasp Cuckoobee Weaverant Fireant Armyant Miningbee Sweatbee Digger Velvetant
        flies and bugs: Housefly Hoverfly Horsefly Mosquito Midge Gnat Cranefly Blowfly Fruitfly Robberfly Aphid Cicada
            Leafhopper Shieldbug Pondskater Waterboatman Backswimmer Whitefly Froghopper Spittlebug
        crickets and others: Cricket Grasshopper Locust Katydid Mantis Stickinsect Leafinsect Cockroach Earwig Dragonfly
            Damselfly Mayfly Stonefly Caddisfly Lacewing Antlion Scorpionfly Snakefly Silverfish Springtail
    """,
    # kitchen
    "Kitchens": """
        eating houses: Bistro Brasserie Trattoria Osteria Pizzeria Taverna Canteen Cafeteria Diner Steakhouse Chophouse
            Grillroom Teahouse Patisserie Creperie Rotisserie Delicatessen Bakery Gastropub Luncheonette
        cooking places: Galley Scullery Cookhouse Bakehouse Smokehouse Brewhouse Kitchenette Commissary Fieldkitchen
            Cookshop Grillhouse Soupkitchen Hearth Campfire Barbecue Chuckwagon Mess Refectory Servery Buttery
        inns: GoldenGoose SilverSwan RedLion WhiteHart BlackBull BlueBoar GreenDragon RoyalOak CrossKeys ThreeTuns
            FoxHounds ShipInn PloughInn WheatSheaf MermaidInn UnicornInn KingsHead QueensArms RisingSun HalfMoon
        kitchens by style: ThaiKitchen GreekKitchen TurkishKitchen LebaneseKitchen PersianKitchen PunjabiKitchen
            BengaliKitchen SichuanKitchen CantoneseKitchen KoreanKitchen JapaneseKitchen VietnameseKitchen
            MexicanKitchen PeruvianKitchen CajunKitchen TuscanKitchen ProvencalKitchen BasqueKitchen MoroccanKitchen
            EthiopianKitchen
        great houses: Blenheim Chatsworth Longleat Holkham Burghley Petworth Woburn Audley Belton Erddig Knole Kedleston
            Osterley Waddesdon Cliveden Lanhydrock Stourhead Harewood Hardwick Montacute
    """,
    "Shelves": """
        kitchen furniture: Cupboard Larder Pantry Dresser Sideboard Cabinet Bookshelf Countertop Drawer Island Trolley
            Hutch Credenza Buffet Whatnot Cubbyhole Breadbin Meatsafe Platerack Worktop
        wooden shelves: OakShelf PineShelf AshShelf BirchShelf MapleShelf WalnutShelf CherryShelf TeakShelf CedarShelf
            BeechShelf ElmShelf AlderShelf BambooShelf MahoganyShelf LarchShelf SpruceShelf PoplarShelf OliveShelf
            AcaciaShelf EbonyShelf
        racks by place: WindowRack DoorRack WallRack CornerRack CeilingRack FloorRack CellarRack AtticRack HallRack
            StairRack PorchRack BalconyRack GardenRack AlcoveRack NicheRack HearthRack OvenRack SinkRack FridgeRack
            FreezerRack
        coloured ledges: RedLedge BlueLedge GreenLedge YellowLedge OrangeLedge PurpleLedge PinkLedge BrownLedge
            BlackLedge WhiteLedge GreyLedge CrimsonLedge ScarletLedge IndigoLedge VioletLedge IvoryLedge CreamLedge
            BeigeLedge MaroonLedge TealLedge
        metal rails: SteelRail IronRail BrassRail CopperRail TinRail ZincRail BronzeRail PewterRail SilverRail
            NickelRail ChromeRail TitaniumRail AluminiumRail CobaltRail GoldRail PlatinumRail EnamelRail GalvanisedRail
            WroughtRail PolishedRail
    """,
    "Jars": """
        vessels: Jug Amphora Urn Pitcher Carafe Decanter Flagon Tankard Ewer Demijohn Flask Vial Beaker Goblet Crock Pot
            Canister Keg Tureen Samovar
        preserves: Marmalade Jam Jelly Chutney Relish Pickle Piccalilli Sauerkraut Kimchi Compote Curd Confit
            Quincepaste Lemoncurd Plumbutter Applebutter Tapenade Pesto Passata Antipasto
        sweet jars: Honey Treacle Molasses Syrup Caramel Toffee Fudge Nougat Praline Marzipan Licorice Humbug Bonbon
            Gumdrop Lollipop Lozenge Truffle Meringue Candyfloss Butterscotch
        condiments: Ketchup Mayonnaise Vinegar Soysauce Tahini Harissa Sambal Sriracha Tabasco Worcester Aioli Remoulade
            Hollandaise Salsa Guacamole Hummus Miso Fishsauce Oystersauce Chimichurri
        dry goods: Flour Semolina Couscous Bulgur Polenta Oatmeal Muesli Granola Lentils Chickpeas Quinoa Rice Pasta
            Macaroni Vermicelli Tapioca Sago Cornstarch Breadcrumbs Yeast
    """,
    "Spices": """
        spices: Cinnamon Nutmeg Mace Clove Cardamom Ginger Turmeric Saffron Vanilla Allspice Anise Cassia Galangal
            Zedoary Sumac Asafoetida Tamarind Amchur Cubeb Zerumbet
        herbs: Basil Oregano Thyme Rosemary Sage Marjoram Tarragon Parsley Chervil Chives Dill Mint Cilantro Lovage
            Savory Bayleaf Lemongrass Borage Hyssop Lavender
        seeds: Cumin Caraway Coriander Fennel Fenugreek Mustardseed Poppyseed Sesame Nigella Ajwain Celeryseed Annatto
            Linseed Chia Pumpkinseed Sunflowerseed Dillseed Aniseed Mahleb Perilla
        blends: Curry Garam Zaatar Baharat Berbere Dukkah Raselhanout Panchphoron Fivespice Shichimi Advieh Chaat Jerk
            Adobo Tandoori Vadouvan Bouquetgarni Finesherbes Quatreepices Pumpkinspice
        peppers and salts: Paprika Cayenne Chipotle Ancho Guajillo Habanero Jalapeno Serrano Pepperoncino Blackpepper
            Whitepepper Pinkpepper Sichuanpepper Longpepper Aleppo Espelette Seasalt Rocksalt Smokedsalt Fleurdesel
    """,
    # city
    "Cities": """
        cities of Europe: Vienna Prague Madrid Berlin Warsaw Budapest Zurich Munich Lyon Turin Milan Seville Cologne
            Leipzig Krakow Sofia Bucharest Zagreb Brussels Ljubljana
        cities of Asia: Kyoto Sapporo Seoul Beijing Chengdu Xian Hanoi Bangkok Chiangmai Mandalay Dhaka Delhi Jaipur
            Lucknow Lahore Kabul Tashkent Samarkand Almaty Tehran
        cities of the Americas: Toronto Ottawa Calgary Winnipeg Denver Dallas Tucson Atlanta Chicago Detroit Memphis
            Guadalajara Puebla Oaxaca Bogota Medellin Quito Cusco Cordoba Asuncion
        cities of Africa: Cairo Luxor Khartoum Nairobi Kampala Kigali Lusaka Harare Gaborone Pretoria Windhoek Kinshasa
            Abuja Kano Bamako Niamey Ouagadougou Fez Marrakesh Addis
        cities of islands and the north: Reykjavik Oslo Uppsala Tampere Oulu Dublin Cork Belfast Glasgow Edinburgh
            Cardiff Leeds Sheffield Canberra Adelaide Brisbane Melbourne Auckland Wellington Dunedin
    """,
    "Depots": """
        storehouses: Garage Hangar Warehouse Carport Roundhouse Boathouse Stable Coachhouse Barn Shed Silo Storehouse
            Lockup Motorpool Drydock Railyard Busbarn Carpark Sidings Loadingbay
        street depots: MarketDepot ChurchDepot MillDepot BridgeDepot CastleDepot StationDepot SchoolDepot RiverDepot
            ParkDepot TowerDepot CanalDepot AbbeyDepot PriorDepot FountainDepot GuildDepot ForgeDepot FerryDepot
            QuarryDepot TannerDepot WeaverDepot
        gemstone yards: AmberYard AgateYard JasperYard CoralYard PearlYard OnyxYard BerylYard OpalYard TopazYard
            GarnetYard JadeYard RubyYard SapphireYard EmeraldYard DiamondYard CrystalYard QuartzYard FlintYard
            GraniteYard MarbleYard
        wind terminals: NorthTerminal SouthTerminal EastTerminal WestTerminal MistralTerminal SiroccoTerminal
            BoraTerminal FohnTerminal ChinookTerminal ZephyrTerminal MonsoonTerminal PamperoTerminal LevantTerminal
            TramontaneTerminal HarmattanTerminal KhamsinTerminal ShamalTerminal MeltemiTerminal PassatTerminal
            BoreasTerminal
        numbered halls: FirstHall SecondHall ThirdHall FourthHall FifthHall SixthHall SeventhHall EighthHall NinthHall
            TenthHall EleventhHall TwelfthHall MainHall UpperHall LowerHall InnerHall OuterHall MiddleHall FrontHall
            RearHall
    """,
    "Vehicles": """
        cars: Sedan Hatchback Coupe Convertible Roadster Limousine Minivan Jeep Estatecar Racecar Microcar Taxi Hearse
            Cabriolet Pickup Crossover Gokart Hotrod Dragster Beachbuggy
        cycles: Bicycle Tricycle Unicycle Tandem Scooter Moped Motorcycle Sidecar Recumbent Pennyfarthing Rickshaw
            Velocipede Cargobike Ebike Handcycle Skateboard Quadbike Trike Minibike Pedicab
        public transport: Bus Minibus Trolleybus Tram Streetcar Metro Monorail Funicular Cablecar Railcar Locomotive
            Omnibus Coach Shuttle Doubledecker Airbus Peoplemover Maglev Charabanc Railbus
        trucks: Lorry Van Truck Semitrailer Flatbed Dumptruck Tanktruck Boxvan Towtruck Firetruck Garbagetruck Milkfloat
            Mailvan Icecreamvan Ambulance Campervan Caravan Horsebox Logger Cementmixer
        working machines and carts: Tractor Bulldozer Excavator Forklift Steamroller Combine Harvester Backhoe Skidsteer
            Grader Wagon Cart Carriage Chariot Stagecoach Sleigh Sled Wheelbarrow Handcart Snowmobile
    """,
    "Parts": """
        engine: Piston Cylinder Crankshaft Camshaft Carburettor Sparkplug Flywheel Gasket Manifold Turbocharger Injector
            Radiator Dipstick Alternator Starter Timingbelt Rockerarm Pushrod Waterpump Fuelpump
        body: Bumper Bonnet Fender Windshield Wiper Tailgate Mudguard Sunroof Grille Doorhandle Roofrack Spoiler Chassis
            Towbar Hubcap Licenseplate Sidepanel Rearwindow Bootlid Wheelarch
        wheels and brakes: Wheel Tyre Axle Rim Spoke Brakepad Brakedisc Brakedrum Bearing Strut Shockabsorber Leafspring
            Coilspring Handbrake Innertube Lugnut Suspension Tierod Driveshaft Differential
        electrics: Headlight Taillight Indicator Fuse Relay Dynamo Ignition Wiring Solenoid Sensor Foglamp Klaxon
            Immobiliser Rectifier Magneto Distributor Condenser Lightbulb Switch Motor
        cabin: Steeringwheel Dashboard Speedometer Clutch Gearstick Accelerator Seatbelt Headrest Airbag Glovebox
            Cupholder Armrest Sunvisor Tachometer Fuelgauge Carpet Rearmirror Sidemirror Ashtray Handle
    """,
}
